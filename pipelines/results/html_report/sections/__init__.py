"""The sections of the page: each module turns the responses that were read into plain data for the template."""
