"""Models are called by names that people read, and that tell them apart."""

from actors.text.model_names import short_name, short_names


def test_a_folder_is_called_by_what_tells_it_from_others() -> None:
    names = short_names(["/runs/a/final", "/runs/b/final", "org/final", "tiny-scalar", "./rm/", "x/y/z", "/runs/a/final"])
    assert names == {
        "/runs/a/final": "a/final",
        "/runs/b/final": "b/final",
        "org/final": "org/final",
        "tiny-scalar": "tiny-scalar",
        "./rm/": "rm",
        "x/y/z": "z",
    }
    assert short_names(["/a/b", "a/b"]) == {"/a/b": "/a/b", "a/b": "a/b"}
    assert short_name("/models/org/rm-8b/") == "rm-8b"
