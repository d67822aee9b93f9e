"""`--hub`: uploads the result of a command to the Hugging Face Hub, with a dataset card that says what it was made by.

Doesn't know how a result is made; reads the document beside it.
"""
