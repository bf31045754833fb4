"""The scripts of `shopfloor completion`, with `@NAMES@` where the commands, options and workers belong.

They start no program and ask no server: runs are the names of transcripts, workers the names of folders. A storage may
have a million transcripts, so ids are offered only after their first characters, which leave few.
"""

from __future__ import annotations

from typing import Final

BASH: Final = """\
_shopfloor() {
    local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" cmd="${COMP_WORDS[1]}"
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        _shopfloor_offer @COMMANDS@
        return
    fi
    case "$cmd $prev" in
@VALUES@
    esac
    case "$cmd" in
@CASES@
    esac
}
_shopfloor_offer() {
    local word
    for word in "$@"; do
        case "$word" in
            # A word that the shell would expand. No worker has such a name, but a folder can.
            *[!A-Za-z0-9._-]*) ;;
            "$cur"*) COMPREPLY+=("$word") ;;
        esac
    done
}
_shopfloor_runs() {
    local file
    _shopfloor_offer last
    [ "${#cur}" -ge 4 ] || return
    for file in "${SHOPFLOOR_STORAGE:-$_shopfloor_storage}"/transcripts/"$cur"*.jsonl; do
        [ -e "$file" ] || continue
        file="${file##*/}"
        _shopfloor_offer "${file%.jsonl}"
    done
}
_shopfloor_workers() {
    local file storage="${SHOPFLOOR_STORAGE:-$_shopfloor_storage}"
    _shopfloor_offer @WORKERS@
    for file in {workers,"$storage"/workers}/*/worker.{yaml,py}; do
        [ -e "$file" ] || continue
        file="${file%/*}"
        _shopfloor_offer "${file##*/}"
    done
}
_shopfloor_storage=@STORAGE@
complete -o default -F _shopfloor shopfloor
"""

ZSH: Final = """\
#compdef shopfloor
_shopfloor() {
    local -a described
    if (( CURRENT == 2 )); then
        described=(
@DESCRIBED@
        )
        _describe -t commands command described
        return
    fi
    case "$words[2] $words[CURRENT-1]" in
@VALUES@
    esac
    case "$words[2]" in
@CASES@
    esac
    (( compstate[nmatches] )) || _files
}
_shopfloor_runs() {
    compadd -- last
    (( $#PREFIX < 4 )) || compadd -- "${SHOPFLOOR_STORAGE:-$_shopfloor_storage}"/transcripts/"$PREFIX"*.jsonl(N:t:r)
}
_shopfloor_workers() {
    local storage="${SHOPFLOOR_STORAGE:-$_shopfloor_storage}"
    compadd -- @WORKERS@ {workers,"$storage"/workers}/*/worker.(yaml|py)(N:h:t)
}
typeset -g _shopfloor_storage=@STORAGE@
if [ "$funcstack[1]" = _shopfloor ]; then
    _shopfloor "$@"
else
    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }
    compdef _shopfloor shopfloor
fi
"""

FISH: Final = """\
function __shopfloor_storage
    if set -q SHOPFLOOR_STORAGE
        echo $SHOPFLOOR_STORAGE
    else
        echo @STORAGE@
    end
end
function __shopfloor_runs
    set -l word (commandline -ct)
    echo last
    test (string length -- "$word") -ge 4 || return
    set -l files (__shopfloor_storage)/transcripts/$word*.jsonl
    for file in $files
        string replace -r '.*/(.*)\\.jsonl$' '$1' -- $file
    end
end
function __shopfloor_workers
    set -l storage (__shopfloor_storage)
    printf '%s\\n' @WORKERS@
    set -l files workers/*/worker.{yaml,py} "$storage/workers/"*/worker.{yaml,py}
    for file in $files
        string replace -r '.*/(.*)/worker\\.(yaml|py)$' '$1' -- "/$file"
    end
end
@LINES@
"""
