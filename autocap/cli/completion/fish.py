"""Completion in fish, 3.1 or later."""

from collections.abc import Iterator, Sequence

from autocap.cli.completion.syntax import Command, Kind, Option, Value

_TEMPLATE = r"""# fish completion of autocap: autocap completion fish | source

# The words of the job's command so far, a line each. Fails where it has not begun.
function __autocap_job
    set -l words (commandline -opc)
    set -l valued
    switch "$words[2]"
@VALUED@
        case '*'
            return 1
    end
    set -l pending no
    for index in (seq 3 (count $words))
        set -l word $words[$index]
        if test $pending = yes
            set pending no
        else if test "$word" = --
            test $index -lt (count $words); and printf '%s\n' $words[(math $index + 1)..-1]
            return 0
        else if contains -- "$word" $valued
            set pending yes
        else if not string match -q -- '-*' "$word"
            printf '%s\n' $words[$index..-1]
            return 0
        end
    end
    return 1
end

# Whether the options and words of a command can stand here.
function __autocap_in
    set -l words (commandline -opc)
    test "$words[2]" = $argv[1]; and not __autocap_job >/dev/null; and not contains -- -- $words
end

function __autocap_first
    test (count (commandline -opc)) -eq 1
end

# The command of a job as it would be completed by itself.
function __autocap_job_words
    set -l before (__autocap_job | string escape)
    test (count $before) -eq 0; and string match -q -- '-*' (commandline -ct); and return
    set -l line (string join ' ' -- $before (commandline -ct))
    complete -C "$line"
end

function __autocap_runs
    for found in autocap-runs/*/events.jsonl
        string replace -r '/events.jsonl$' '' -- $found
    end
    __fish_complete_directories
end

complete -c autocap -e
complete -c autocap -f
complete -c autocap -n __autocap_first -l version -d 'show the version'
complete -c autocap -n __autocap_first -s h -l help -d 'show what there is'
complete -c autocap -n '__autocap_job >/dev/null' -x -a '(__autocap_job_words)'
@LINES@
"""
_ACTIONS = {
    Kind.FILES: "-rF",
    Kind.DIRECTORIES: "-x -a '(__fish_complete_directories)'",
    Kind.RUNS: "-x -a '(__autocap_runs)'",
    Kind.PROCESSES: "-x -a '(__fish_complete_pids)'",
    Kind.ANYTHING: "-x",
}


def script(commands: Sequence[Command]) -> str:
    """To be read by fish."""
    valued = "\n".join(map(_valued, (command for command in commands if command.has_job)))
    lines = "\n".join(line for command in commands for line in _lines(command))
    return _TEMPLATE.replace("@VALUED@", valued).replace("@LINES@", lines)


def _valued(command: Command) -> str:
    flags = " ".join(flag for option in command.options if option.value for flag in option.flags)
    return f"        case {command.name}\n            set valued {flags}"


def _lines(command: Command) -> Iterator[str]:
    yield f"complete -c autocap -n __autocap_first -a {command.name} -d {_quoted(command.summary)}"
    here = f"complete -c autocap -n '__autocap_in {command.name}'"
    for option in command.options:
        yield f"{here} {_flags(option)} {'' if option.value is None else _action(option.value) + ' '}" + (
            f"-d {_quoted(option.help)}"
        )
    if command.has_job:
        yield f"{here} -x -a '(__autocap_job_words)'"
    elif command.words is not None:
        yield f"{here} {_action(command.words).replace('-rF', '-F')}"


def _flags(option: Option) -> str:
    return " ".join(f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags)


def _action(value: Value) -> str:
    return f"-x -a {_quoted(' '.join(value.words))}" if value.kind is Kind.WORDS else _ACTIONS[value.kind]


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
