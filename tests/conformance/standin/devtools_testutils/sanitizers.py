"""What keeps secrets out of recordings; there are no recordings."""


def add_remove_header_sanitizer(**_: object) -> None: ...


def add_general_regex_sanitizer(**_: object) -> None: ...


def add_oauth_response_sanitizer(**_: object) -> None: ...
