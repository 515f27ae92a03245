//! `completions` and `man`: what shells and readers want to know of the command line, made from its own definition.
use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::Cli;
use super::output::Output;
use crate::mistake::BadInput;

/// The program's name, as the package installs it.
const NAME: &str = "photofinish";

#[derive(Args)]
pub(super) struct CompletionsArgs {
    /// The shell.
    #[arg(value_name = "SHELL", value_parser = shell)]
    shell: Shell,
}

#[derive(Args)]
pub(super) struct ManArgs {
    /// One of the program's commands; none: the program.
    #[arg(value_name = "COMMAND")]
    command: Option<String>,
}

fn shell(text: &str) -> Result<Shell, String> {
    text.parse().map_err(|_| "expected bash, elvish, fish, powershell or zsh".into())
}

pub(super) fn completions(args: &CompletionsArgs, output: &mut Output) -> u8 {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), NAME, &mut text);
    output.text(&String::from_utf8_lossy(&text));
    0
}

pub(super) fn man(args: &ManArgs, output: &mut Output) -> Result<u8, BadInput> {
    let mut program = Cli::command().name(NAME);
    // Names of the commands become "photofinish-run".
    program.build();
    let command = match &args.command {
        None => program,
        Some(name) => match program.find_subcommand(name) {
            Some(command) => command.clone(),
            None => {
                return Err(BadInput::unknown("command", name, program.get_subcommands().map(clap::Command::get_name)));
            }
        },
    };
    let title = command.get_display_name().unwrap_or(NAME).to_owned();
    let mut text = Vec::new();
    let page = clap_mangen::Man::new(command).title(title);
    page.render(&mut text).map_err(|e| BadInput::new(format!("the manual page cannot be written: {e}")))?;
    output.text(&String::from_utf8_lossy(&text));
    Ok(0)
}
