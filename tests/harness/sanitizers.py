"""Builds with a sanitizer: their folder, and what their programs are told through the environment.

    python3 tests/harness/sanitizers.py address|thread     prints `export NAME='VALUE'` for a shell
"""
import os
import shlex
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDERS = {None: "build", "address": "build-asan", "thread": "build-tsan"}  # address: with undefined
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1:"
                    "allocator_may_return_null=1:handle_abort=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
    "LSAN_OPTIONS": "print_suppressions=0",
}


def set_options(environment):
    """What is set already stays."""
    for name, options in OPTIONS.items():
        suppressions = os.path.join(ROOT, "tests", "harness", name[:4].lower() + ".supp")
        if os.path.exists(suppressions):
            options += ":suppressions=" + suppressions
        environment.setdefault(name, options)


if __name__ == "__main__":
    found = {key: value for key, value in os.environ.items() if key in OPTIONS}
    set_options(found)
    found["PENSTOCK_BUILD_DIR"] = os.path.join(ROOT, FOLDERS[sys.argv[1]])
    for key, value in found.items():
        print(f"export {key}={shlex.quote(value)}")
