"""Completion in zsh: options with their help, through its own `_arguments`."""

from collections.abc import Sequence

from autocap.cli.completion.syntax import Command, Kind, Option, Value

_TEMPLATE = r"""#compdef autocap
# zsh completion of autocap: eval "$(autocap completion zsh)", or as a file _autocap in a directory of $fpath

_autocap_runs() {
    local -a runs=(autocap-runs/*/events.jsonl(N:h))
    (( $#runs )) && compadd -f -- $runs
    _directories
}

_autocap_processes() {
    compadd -- /proc/<->(N/:t)
}

# The command of a job as it would be completed by itself.
_autocap_job() {
    while [[ $words[1] == -* ]] && (( CURRENT > 1 )); do
        shift words
        (( CURRENT-- ))
    done
    _normal
}

_autocap() {
    local curcontext=$curcontext state line ret=1
    local -a subcommands=(
@COMMANDS@
    )
    _arguments -C '(- *)--help[show what there is]' '(- *)--version[show the version]' \
        '1: :->command' '*:: :->words' && ret=0
    case $state in
        command) _describe -t commands command subcommands && ret=0 ;;
        words)
            case $words[1] in
@CASES@
            esac ;;
    esac
    return ret
}

if [[ $funcstack[1] == _autocap ]]; then
    _autocap "$@"
else
    compdef _autocap autocap
fi
"""
_ACTIONS = {
    Kind.FILES: "_files",
    Kind.DIRECTORIES: "_directories",
    Kind.RUNS: "_autocap_runs",
    Kind.PROCESSES: "_autocap_processes",
    Kind.ANYTHING: " ",
}


def script(commands: Sequence[Command]) -> str:
    """To be read by zsh."""
    described = "\n".join(f"        {_quoted(f'{one.name}:{_plain(one.summary)}')}" for one in commands)
    return _TEMPLATE.replace("@COMMANDS@", described).replace("@CASES@", "\n".join(map(_case, commands)))


def _case(command: Command) -> str:
    specs = [spec for option in command.options for spec in _specs(option)]
    if command.has_job:
        specs += ["(-)1:command: _command_names -e", "*::arguments: _autocap_job"]
    elif command.words is not None:
        specs.append(f"*:{_plain(command.words.name)}:{_action(command.words)}")
    lines = " \\\n".join(f"                        {_quoted(spec)}" for spec in specs)
    return f"                {command.name})\n                    _arguments -S \\\n{lines} && ret=0 ;;"


def _specs(option: Option) -> list[str]:
    text = f"[{_plain(option.help)}]"
    others = "(- *)" if "--help" in option.flags else f"({' '.join(option.flags)})" if len(option.flags) > 1 else ""
    before = "*" if option.repeated else others
    if option.value is None:
        return [f"{before}{flag}{text}" for flag in option.flags]
    value = f":{_plain(option.value.name)}:{_action(option.value)}"
    return [f"{before}{flag}{'=' if flag.startswith('--') else ''}{text}{value}" for flag in option.flags]


def _action(value: Value) -> str:
    if value.kind is not Kind.WORDS:
        return _ACTIONS[value.kind]
    return f"({' '.join(word.replace(':', chr(92) + ':') for word in value.words)})"


def _plain(text: str) -> str:
    """Text in a specification, where brackets and colons mean something."""
    return "".join(f"\\{char}" if char in "[]:\\" else char for char in text)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
