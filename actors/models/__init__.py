"""One family of reward models a file: its ids, its contract, how it is asked and read. Nothing else.

A family is found by being here (`actors.reward_model.families`), and needs `actors.contracts` and what it parses with.
"""
