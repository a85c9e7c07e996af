//! `forebay completion`: scripts by which shells complete commands and options, made from the command line's
//! own description. Everything else is left to the shell, which knows files.

use std::fmt::Write;

use clap::{Arg, Command, ValueEnum};

/// Whose script it is.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// What may stand behind some words.
struct CompletionPlace {
    /// `forebay ctl drain`.
    path: String,
    /// Commands and options, each with what it is for.
    words: Vec<(String, String)>,
}

pub(crate) fn script(shell: Shell, command: &mut Command) -> String {
    command.build();
    let mut places = Vec::new();
    list(command, command.get_name().to_owned(), &mut places);
    match shell {
        Shell::Bash => bash(&places),
        Shell::Zsh => zsh(&places),
        Shell::Fish => fish(&places),
    }
}

/// The place behind a command, and those behind what is inside it.
fn list(command: &Command, path: String, places: &mut Vec<CompletionPlace>) {
    let inner = || command.get_subcommands().filter(|inner| !inner.is_hide_set());
    let commands = inner().map(|inner| (inner.get_name().to_owned(), inner.get_about().map(first_sentence)));
    let options = command.get_arguments().filter(|option| !option.is_hide_set());
    let option = |option: &Arg| {
        let name = option.get_long()?;
        Some((format!("--{name}"), option.get_help().map(first_sentence)))
    };
    let words = commands.chain(options.filter_map(option));
    let words = words.map(|(word, help)| (word, help.unwrap_or_default()));
    places.push(CompletionPlace {
        path: path.clone(),
        words: words.collect(),
    });
    // `help` has every command below it once more.
    for inner in inner().filter(|inner| inner.get_name() != "help") {
        list(inner, format!("{path} {}", inner.get_name()), places);
    }
}

/// Without what means something within the quotes of a shell.
fn first_sentence(text: &clap::builder::StyledStr) -> String {
    let text = text.to_string();
    let sentence = text.lines().next().unwrap_or_default();
    let sentence = sentence.split(". ").next().unwrap_or_default();
    sentence
        .replace(':', ",")
        .replace(['\'', '`', '\\', '[', ']'], "")
}

/// The path grows by each word that makes another place of it; options and their values leave it as it is.
fn bash(places: &[CompletionPlace]) -> String {
    let mut script = "\
# eval \"$(forebay completion bash)\", or a file of /usr/share/bash-completion/completions
_forebay() {
    local path=forebay word
    for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do
        case \"$path $word\" in
"
    .to_owned();
    for place in &places[1..] {
        let _ = writeln!(script, "            '{0}') path='{0}' ;;", place.path);
    }
    script.push_str("        esac\n    done\n    case $path in\n");
    for place in places {
        let words: Vec<_> = place.words.iter().map(|(word, _)| word.as_str()).collect();
        let _ = writeln!(script, "        '{}') word='{}' ;;", place.path, words.join(" "));
    }
    script.push_str(
        "    esac
    COMPREPLY=($(compgen -W \"$word\" -- \"${COMP_WORDS[COMP_CWORD]}\"))
}
complete -o default -F _forebay forebay
",
    );
    script
}

fn zsh(places: &[CompletionPlace]) -> String {
    let mut script = "\
#compdef forebay
# eval \"$(forebay completion zsh)\" behind compinit, or a file _forebay in a folder of $fpath
_forebay() {
    local place=forebay word
    local -a choices
    for word in \"${(@)words[2,CURRENT-1]}\"; do
        case \"$place $word\" in
"
    .to_owned();
    for place in &places[1..] {
        let _ = writeln!(script, "            '{0}') place='{0}' ;;", place.path);
    }
    script.push_str("        esac\n    done\n    case $place in\n");
    for place in places {
        let words = place.words.iter().map(|(word, help)| format!("'{word}:{help}'"));
        let words: Vec<_> = words.collect();
        let _ = writeln!(
            script,
            "        '{}') choices=({}) ;;",
            place.path,
            words.join(" ")
        );
    }
    script.push_str(
        "    esac
    _describe forebay choices || _files
}
if [[ $funcstack[1] == _forebay ]]; then _forebay \"$@\"; else compdef _forebay forebay; fi
",
    );
    script
}

fn fish(places: &[CompletionPlace]) -> String {
    let mut script = "\
# forebay completion fish | source, or a file of ~/.config/fish/completions
function __forebay_at
    set -l place forebay
    for word in (commandline -opc)[2..]
        switch \"$place $word\"
"
    .to_owned();
    for place in &places[1..] {
        let _ = writeln!(
            script,
            "            case '{0}'\n                set place '{0}'",
            place.path
        );
    }
    script.push_str("        end\n    end\n    test $place = $argv[1]\nend\n");
    for place in places {
        for (word, help) in &place.words {
            let what = match word.strip_prefix("--") {
                Some(option) => format!("-l {option}"),
                None => format!("-a {word}"),
            };
            let _ = writeln!(
                script,
                "complete -c forebay -n \"__forebay_at '{}'\" {what} -d '{help}'",
                place.path
            );
        }
    }
    script
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used)] // helpers of tests

    use std::process::Command as Process;

    use clap::CommandFactory;

    use super::*;

    fn of(shell: Shell) -> String {
        script(shell, &mut crate::Cli::command())
    }

    /// What bash offers behind these words.
    fn completed(words: &[&str]) -> Vec<String> {
        let typed = words.join(" ");
        let ask = format!(
            "{}\nCOMP_WORDS=({typed}{})\nCOMP_CWORD={}\n_forebay\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"",
            of(Shell::Bash),
            if words.last() == Some(&"") { " ''" } else { "" },
            words.len() - 1,
        );
        let output = Process::new("bash").args(["-c", &ask]).output().expect("bash");
        assert!(output.stderr.is_empty(), "{output:?}");
        let offered = String::from_utf8(output.stdout).expect("text");
        offered.lines().map(str::to_owned).collect()
    }

    #[test]
    fn bash_completes_commands_and_options() {
        assert_eq!(completed(&["forebay", "ct"]), ["ctl"]);
        assert_eq!(completed(&["forebay", "ctl", "dr"]), ["drain", "drains"]);
        assert_eq!(
            completed(&["forebay", "ctl", "drain", "--one"]),
            ["--one-at-a-time"]
        );
        let behind_option = ["forebay", "ctl", "--socket", "/x", "dra"];
        assert_eq!(completed(&behind_option), ["drain", "drains"]);
        assert!(completed(&["forebay", "ctl", "drain", ""]).contains(&"--deadline".to_owned()));
        assert_eq!(completed(&["forebay", "ctl", "drain", "db"]), [""]);
    }

    /// The other shells need not be here.
    #[test]
    fn every_script_knows_every_command() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = of(shell);
            for place in [
                "forebay ctl drain",
                "forebay import haproxy",
                "forebay sandbox up",
            ] {
                assert!(script.contains(place), "{place}");
            }
            assert!(script.contains("one-at-a-time"));
        }
        for (program, shell) in [("zsh", Shell::Zsh), ("fish", Shell::Fish)] {
            // `-n` reads a script and runs nothing of it.
            let Ok(output) = Process::new(program).args(["-n", "-c", &of(shell)]).output() else {
                continue;
            };
            assert!(output.status.success(), "{output:?}");
        }
    }
}
