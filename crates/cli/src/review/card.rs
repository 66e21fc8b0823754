//! The card: one proposed call, as a person sees it before he answers (design 7, scenarios K).
//!
//! What the agent wrote stands behind a gutter, and facts of the host stand between it and the question, so that no
//! text of the agent can pass for ours (K7).

use anstyle::Style;
use countersign_approval_core::review::{ApprovalRequest, IdlePolicy};

use super::layout::{self, DIM};
use super::terminal::Screen;

const BOLD: Style = Style::new().bold();
/// Lines of a card, with the question, that are not the arguments.
const FRAME: usize = 15;
/// The least lines of arguments that are worth showing.
const LEAST: usize = 6;

/// How much of the arguments is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// What fits the window; how much is left out is said.
    Window,
    /// All of it.
    Whole,
}

/// A drawn card.
pub(crate) struct Card {
    /// Its lines, with styles.
    pub(crate) lines: Vec<String>,
    /// How many lines of the arguments are not in it.
    pub(crate) left_out: usize,
}

impl Card {
    pub(crate) fn draw(approval: &ApprovalRequest, screen: Screen, extent: Extent) -> Self {
        let call = approval.call.call();
        let gutter = screen.gutter();
        let inner = screen.width.saturating_sub(gutter.chars().count() + 3);
        let id = layout::string("call id ", call.id.as_str(), inner, screen.charset);
        let arguments = layout::json(call.arguments.text(), inner, screen.charset);
        let (proposal, left_out) = match (extent, screen.height) {
            (Extent::Window, Some(height)) => {
                let room = height.saturating_sub(FRAME + id.len()).max(LEAST);
                layout::cut(arguments, room)
            }
            (Extent::Window, None) | (Extent::Whole, _) => (arguments, 0),
        };
        let mut lines = vec![
            format!("{BOLD}{}{BOLD:#}", screen.rule()),
            format!("  The agent asks to call {BOLD}{}{BOLD:#}. Nothing has run yet.", call.name),
            format!("  {DIM}Behind the bar stands the agent's text, exactly as it would run:{DIM:#}"),
        ];
        lines.extend(id.iter().chain(&proposal).map(|line| format!("  {DIM}{gutter}{DIM:#}{}", line.text)));
        lines.extend(facts(approval));
        lines.push(format!("{BOLD}{}{BOLD:#}", screen.rule()));
        Self { lines, left_out }
    }
}

/// What the host vouches for.
fn facts(approval: &ApprovalRequest) -> Vec<String> {
    let fact = |name: &str, value: String| format!("  {DIM}{name:<9}{DIM:#}{value}");
    let waiting = match approval.idle_policy {
        IdlePolicy::Pause => "the run waits for you",
        IdlePolicy::Continue => "the run's idle limit, if it has one, goes on",
    };
    let end = match approval.expires_at {
        Some(at) => format!("expires {at}"),
        None => "does not expire".to_owned(),
    };
    vec![
        fact("run", approval.run_id.to_string()),
        fact("approval", approval.approval_id.to_string()),
        fact("asked", approval.requested_at.to_string()),
        fact("until", format!("{end}; {waiting}")),
    ]
}
