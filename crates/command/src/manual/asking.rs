//! Completions that ask the program for the words that only it knows, and otherwise go on as clap
//! has written them.

use std::collections::BTreeSet;

use clap::Command;
use clap_complete::Shell;

/// Bash splits words at `:` and `=`, and completes the last part.
const BASH: &str = r#"
_NAME_asking() {
    local words=("${COMP_WORDS[0]}") word joins= begun
    for word in "${COMP_WORDS[@]:1:COMP_CWORD}"; do
        if [[ $joins || ${#words[@]} -gt 1 && $word == [:=] ]]; then
            words[-1]+=$word
        else
            words+=("$word")
        fi
        [[ $word == [:=] ]] && joins=1 || joins=
    done
    begun=${words[-1]}
    [[ $word == [:=] ]] || begun=${begun%"$word"}
    mapfile -t COMPREPLY < <("${COMP_WORDS[0]}" complete -- "${words[@]}" 2>/dev/null)
    if [[ ${#COMPREPLY[@]} -gt 0 ]]; then
        COMPREPLY=("${COMPREPLY[@]#"$begun"}")
        [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace
    else
        _NAME "$@"
    fi
}

complete -F _NAME_asking -o nosort -o bashdefault -o default NAME
"#;

/// The function replaces itself when it is loaded, so what clap has written calls it by its name.
const ZSH: &str = r#"
_NAME_asking() {
    local -a known
    known=("${(@f)$("${words[1]}" complete -- "${(@Q)words[1,CURRENT]}" 2>/dev/null)}")
    known=(${known:#})
    if (( $#known )); then
        compadd -a known
    else
        _NAME "$@"
    fi
}

compdef _NAME_asking NAME
if [ "$funcstack[1]" = "_NAME" ]; then
    _NAME_asking "$@"
fi
"#;

const FISH: &str = r#"
function __NAME_asking
    NAME complete -- (commandline -opc) (commandline -ct) 2>/dev/null
end
complete -c NAME -n 'test -n "$(__NAME_asking)"' -f -a '(__NAME_asking)'
function __NAME_asking_value
    __NAME_asking | string replace -r '^--[^=]*=' ''
end
"#;

/// Enters the options of a command and of those below it that have values, as fish names them.
fn with_values(command: &Command, found: &mut BTreeSet<String>) {
    for arg in command.get_arguments().filter(|arg| arg.get_action().takes_values()) {
        found.extend(arg.get_long().map(|long| format!("-l {long}")));
        found.extend(arg.get_short().map(|letter| format!("-s {letter}")));
    }
    command.get_subcommands().for_each(|below| with_values(below, found));
}

/// Returns the script of a shell with the asking of the program added.
pub(super) fn script(shell: Shell, script: Vec<u8>, command: &Command) -> Vec<u8> {
    let mut text = String::from_utf8_lossy(&script).into_owned();
    let added = match shell {
        Shell::Bash => BASH,
        Shell::Zsh => {
            // The call when it is loaded stands at the end.
            let loads = text.rfind("\nif [ \"$funcstack[1]\"");
            text.truncate(loads.unwrap_or(text.len()));
            ZSH
        }
        _ => FISH,
    };
    let mut added = added.to_owned();
    if shell == Shell::Fish {
        let mut options = BTreeSet::new();
        with_values(command, &mut options);
        let asks = |option| format!("complete -c NAME {option} -r -a '(__NAME_asking_value)'\n");
        added.extend(options.iter().map(asks));
    }
    text += &added.replace("NAME", command.get_name());
    text.into_bytes()
}
