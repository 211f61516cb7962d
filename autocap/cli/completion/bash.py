"""Completion in bash, 4.4 or later, with and without the package bash-completion."""

from collections.abc import Sequence
from shlex import quote

from autocap.cli.completion.syntax import Command, Kind, Option, Value

_TEMPLATE = r"""# bash completion of autocap: eval "$(autocap completion bash)"

# What may follow an option of a command, or stand beside options: a kind, and words. Fails where nothing may.
_autocap_value() {
    case $1 in
@VALUES@
        *) return 1 ;;
    esac
}

_autocap_options() {
    case $1 in
@OPTIONS@
    esac
}

# Of candidates on standard input, those that continue a word, without what readline keeps of it.
_autocap_reply() {
    local word=$1 kept= char one
    for char in : =; do
        [[ $COMP_WORDBREAKS == *"$char"* && $word == *"$char"* ]] || continue
        one=${word%"${word##*"$char"}"}
        (( ${#one} > ${#kept} )) && kept=$one
    done
    while IFS= read -r one; do
        [[ $one == "$word"* ]] && COMPREPLY+=("${one#"$kept"}")
    done
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *: ]] && compopt -o nospace 2>/dev/null
}

_autocap_complete() {
    local kind=$1 before=$2 word=$3 one
    shift 3
    case $kind in
        words) _autocap_reply "$before$word" < <(printf '%s\n' "${@/#/"$before"}") ;;
        processes) _autocap_complete words "$before" "$word" $(cd /proc && printf '%s\n' [0-9]*) ;;
        files | directories | runs)
            compopt -o filenames 2>/dev/null
            local action=-d
            [[ $kind == files ]] && action=-f
            while IFS= read -r one; do COMPREPLY+=("$one"); done < <(
                if [[ $kind == runs ]]; then
                    for one in autocap-runs/*/; do
                        [[ -e ${one}events.jsonl && $one == "$word"* ]] && printf '%s\n' "${one%/}" && kind=
                    done
                fi
                [[ -n $kind ]] && compgen "$action" -- "$word"
            ) ;;
    esac
}

_autocap() {
    local IFS=$' \t\n' words=() index pending= value command flag word
    read -r -a words <<<"${COMP_LINE:0:COMP_POINT}"
    [[ ${COMP_LINE:0:COMP_POINT} == *[[:space:]] ]] && words+=('')
    COMPREPLY=()
    word=${words[-1]}
    if (( ${#words[@]} <= 2 )); then
        _autocap_reply "$word" < <(printf '%s\n' @COMMANDS@ --help --version)
        return
    fi
    command=${words[1]}
    for (( index = 2; index < ${#words[@]} - 1; index++ )); do
        flag=${words[index]}
        if [[ -n $pending ]]; then
            pending=
        elif [[ $flag == -- ]]; then
            (( index++ ))
            _autocap_job "$command" "$index" "${words[@]}"
            return
        elif [[ $flag == -* ]]; then
            _autocap_value "$command $flag" >/dev/null && pending=$flag
        elif _autocap_value "$command job" >/dev/null; then
            _autocap_job "$command" "$index" "${words[@]}"
            return
        fi
    done
    IFS=$'\n'
    if [[ -n $pending ]]; then
        value=($(_autocap_value "$command $pending"))
        _autocap_complete "${value[0]}" '' "$word" "${value[@]:1}"
    elif [[ $word == --*=* ]]; then
        value=($(_autocap_value "$command ${word%%=*}"))
        _autocap_complete "${value[0]}" "@JOINED@" "${word#*=}" "${value[@]:1}"
    elif [[ $word == -* ]]; then
        _autocap_reply "$word" < <(_autocap_options "$command")
    elif _autocap_value "$command job" >/dev/null; then
        _autocap_job "$command" "$(( ${#words[@]} - 1 ))" "${words[@]}"
    elif _autocap_value "$command" >/dev/null; then
        value=($(_autocap_value "$command"))
        _autocap_complete "${value[0]}" '' "$word" "${value[@]:1}"
    else
        _autocap_reply "$word" < <(_autocap_options "$command")
    fi
}

# The command of a job, which begins at that word of the line: as by itself where the package bash-completion is
# there, else a program, then files. Nothing of ours.
_autocap_job() {
    local IFS=$' \t\n' command=$1 begin=$2 one at=0 joined
    shift 2
    _autocap_value "$command job" >/dev/null || return
    if declare -F _command_offset >/dev/null; then
        for one in "${@:1:begin}"; do
            joined=
            while [[ $joined != "$one" ]] && (( at <= COMP_CWORD )); do
                joined+=${COMP_WORDS[at]}  # which are split at : and = as well
                (( ++at ))
            done
        done
        if (( at <= COMP_CWORD )); then
            _command_offset "$at"
            return
        fi
    fi
    local word=${!#}
    compopt -o filenames 2>/dev/null
    while IFS= read -r one; do COMPREPLY+=("$one"); done < <(
        if (( $# - 1 == begin )); then
            { compgen -c -- "$word"; compgen -d -- "$word"; [[ $word == */* ]] && compgen -f -- "$word"; } | sort -u
        else
            compgen -f -- "$word"
        fi
    )
}

complete -F _autocap autocap
"""


def script(commands: Sequence[Command]) -> str:
    """To be read by bash."""
    names = [command.name for command in commands]
    return (
        _TEMPLATE.replace("@VALUES@", "\n".join(line for command in commands for line in _values(command)))
        .replace("@OPTIONS@", "\n".join(map(_options, commands)))
        .replace("@COMMANDS@", " ".join(names))
        .replace("@JOINED@", "${word%%=*}=")
    )


def _values(command: Command) -> list[str]:
    lines = [_case([f"{command.name} {flag}" for flag in option.flags], option.value) for option in _valued(command)]
    if command.words is not None:
        lines.append(_case([command.name], command.words))
    if command.has_job:
        lines.append(_case([f"{command.name} job"], Value(name="", kind=Kind.FILES)))
    return lines


def _valued(command: Command) -> list[Option]:
    return [option for option in command.options if option.value is not None]


def _case(patterns: Sequence[str], value: Value | None) -> str:
    assert value is not None
    found = " ".join(map(quote, (value.kind.name.lower(), *value.words)))
    return f"        {' | '.join(map(quote, patterns))}) printf '%s\\n' {found} ;;"


def _options(command: Command) -> str:
    flags = " ".join(flag for option in command.options for flag in option.flags)
    return f"        {command.name}) printf '%s\\n' {flags} ;;"
