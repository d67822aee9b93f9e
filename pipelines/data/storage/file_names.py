"""Names of files and folders that are made of values, of rows for example."""

import hashlib
import re

# File systems take 255 bytes for a name: two of these (77 characters at most), a number and a suffix fit. 12 hexadecimal
# digits are 48 bits, so of a million values two meet with a chance of 0.2 %.
_MOST_CHARACTERS, _HASH_CHARACTERS = 64, 12


def file_name(value: str) -> str:
    """A name for a value: another one for each, one level deep, of ASCII, and short enough for two of them in a file's name.

    `org/model` is `org--model`. A value that can't stay readable whole is its end, `~` and a hash.
    """
    name = re.sub(r"[^\w.+@-]", "_", value.replace("/", "--"), flags=re.ASCII)
    if name.replace("--", "/") == value and name[:1] not in ("", ".", "-") and len(name) <= _MOST_CHARACTERS:
        return name
    # Lone surrogates, which JSON may hold, are no UTF-8: without `surrogatepass` they would raise.
    digest = hashlib.sha256(value.encode(errors="surrogatepass")).hexdigest()[:_HASH_CHARACTERS]
    return f"{name[-_MOST_CHARACTERS:].lstrip('.-')}~{digest}"
