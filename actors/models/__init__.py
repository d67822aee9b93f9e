"""One family of reward models a file, or some small ones: ids, contract, how it is asked and read. Nothing else.

A family is found by being here, in a file that defines `FAMILY` (`actors.reward_model.families`). It needs
`actors.contracts`, records, a checkpoint's facts, and what it parses with.
`docs/contributing/families.md` says how to add one.
"""
