//! Asking a person in the terminal.

use std::io::{self, Write};

use countersign_approval_core::review::{ApprovalRequest, Decision};

/// Shows the call and reads the answer. There is no default: an empty line asks again, the end of input cancels.
pub(crate) fn ask(approval: &ApprovalRequest) -> io::Result<Decision> {
    let call = approval.call.call();
    println!("\n{} wants to run with\n  {}", call.name, visible(call.arguments.text()));
    loop {
        print!("approve, deny or cancel? ");
        io::stdout().flush()?;
        let mut line = String::new();
        if io::stdin().read_line(&mut line)? == 0 {
            return Ok(Decision::Cancel);
        }
        if let Ok(decision) = decision(line.trim()) {
            return Ok(decision);
        }
    }
}

/// A person's word.
pub(crate) fn decision(word: &str) -> Result<Decision, String> {
    match word {
        "approve" => Ok(Decision::Approve),
        "deny" => Ok(Decision::Deny),
        "cancel" => Ok(Decision::Cancel),
        _ => Err("expected approve, deny or cancel".into()),
    }
}

/// A model wrote this text. Whatever could steer a terminal or look like something else is shown as its code point.
pub(crate) fn visible(text: &str) -> String {
    let plain = |c: char| c == ' ' || c.is_ascii_graphic();
    text.chars().map(|c| if plain(c) { c.to_string() } else { c.escape_unicode().to_string() }).collect()
}
