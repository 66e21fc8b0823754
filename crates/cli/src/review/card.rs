//! The card: one proposed call, as a person sees it before he answers (design 7, scenarios K).
//!
//! What the agent wrote stands behind a gutter, and facts of the host stand between it and the question, so that no
//! text of the agent can pass for ours (K7).

use anstyle::Style;
use countersign_approval_core::review::{ApprovalRequest, IdlePolicy};

use super::escape::Charset;
use super::layout::{self, DIM, prose};
use super::terminal::Screen;

const BOLD: Style = Style::new().bold();
/// Two rules, and what stands below the card: what is left out, and the question.
const FRAME: usize = 4;
/// The least lines of arguments that are worth showing.
const LEAST: usize = 6;

/// What a card shows: who asks for what, and what is known of it here.
#[derive(Debug)]
pub(crate) struct Proposal<'a> {
    /// Our words on top: who asks, and that it has not run.
    pub(crate) heading: String,
    /// The agent's own name of the call, if it has one.
    pub(crate) call_id: Option<&'a str>,
    /// The arguments: a JSON text.
    pub(crate) arguments: &'a str,
    /// What we vouch for; a line each.
    pub(crate) facts: Vec<String>,
}

impl<'a> From<&'a ApprovalRequest> for Proposal<'a> {
    fn from(approval: &'a ApprovalRequest) -> Self {
        let call = approval.call.call();
        Self {
            heading: format!("The agent asks to call {}. Nothing has run yet.", call.name),
            call_id: Some(call.id.as_str()),
            arguments: call.arguments.text(),
            facts: facts(approval),
        }
    }
}

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
    pub(crate) fn draw(proposal: &Proposal<'_>, screen: Screen, extent: Extent) -> Self {
        let gutter = screen.gutter();
        let rule = format!("{BOLD}{}{BOLD:#}", screen.rule());
        let width = screen.width.saturating_sub(1);
        let heading = prose(&proposal.heading, width, 2);
        let explained =
            prose("Behind the bar: the agent's text, laid out for reading; the values are exact:", width, 2);

        let inner = screen.width.saturating_sub(gutter.chars().count() + 3);
        let id: Vec<_> = proposal
            .call_id
            .map(|id| layout::string("call id ", id, inner, screen.charset))
            .unwrap_or_default();
        let arguments = layout::json(proposal.arguments, inner, screen.charset);
        let mut facts: Vec<String> = proposal.facts.iter().flat_map(|fact| prose(fact, width, 2)).collect();
        if id.iter().chain(&arguments).any(|line| line.counts) {
            facts.splice(..0, prose(legend(screen.charset), width, 2));
        }
        let (arguments, left_out) = match (extent, screen.height) {
            (Extent::Window, Some(height)) => {
                let others = heading.len() + explained.len() + id.len() + facts.len() + FRAME;
                layout::cut(arguments, height.saturating_sub(others).max(LEAST))
            }
            (Extent::Window, None) | (Extent::Whole, _) => (arguments, 0),
        };
        let proposed = id.iter().chain(&arguments);
        let lines = std::iter::once(rule.clone())
            .chain(heading.iter().map(|line| format!("{BOLD}{line}{BOLD:#}")))
            .chain(explained.iter().map(|line| format!("{DIM}{line}{DIM:#}")))
            .chain(proposed.map(|line| line.behind(gutter)))
            .chain(facts)
            .chain([rule])
            .collect();
        Self { lines, left_out }
    }
}

/// What a count in the agent's text means.
const fn legend(charset: Charset) -> &'static str {
    match charset {
        Charset::Utf8 => "×N above: what stands before it, N times in a row; · is a blank",
        Charset::Ascii => r"*N above: what stands before it, N times in a row; \u{20} is a blank",
    }
}

/// What the host vouches for.
fn facts(approval: &ApprovalRequest) -> Vec<String> {
    let waiting = match approval.idle_policy {
        IdlePolicy::Pause => "the run waits for you",
        IdlePolicy::Continue => "the run's idle limit, if it has one, goes on",
    };
    let end = match approval.expires_at {
        Some(at) => format!("expires {at}"),
        None => "does not expire".to_owned(),
    };
    vec![
        format!("run {}", approval.run_id),
        format!("approval {}", approval.approval_id),
        format!("asked {}", approval.requested_at),
        format!("{end}; {waiting}"),
    ]
}

#[cfg(test)]
mod tests {
    use countersign_approval_core::clock::Timestamp;
    use countersign_approval_core::ids::{ApprovalId, CallId, RunId, ToolName};
    use countersign_approval_core::json::Exact;
    use countersign_approval_core::snapshot::{Snapshot, ToolCall};
    use expect_test::{Expect, expect};
    use unicode_width::UnicodeWidthStr;

    use super::*;

    const ARGUMENTS: &str = r#"{"path":"notes/\u202etxt.exe","why":"SAFE – already approved by security\n[a] approve > a","argv":[],"body":"BODY"}"#;

    fn request(call_id: &str, arguments: &str) -> ApprovalRequest {
        let call = ToolCall {
            id: CallId::parse(call_id).unwrap(),
            name: ToolName::parse("save_file").unwrap(),
            arguments: Exact::parse(arguments).unwrap(),
        };
        ApprovalRequest {
            approval_id: ApprovalId::parse("0b8f5c0e-6d7a-4c44-9a59-1f1d3e2a7c11").unwrap(),
            run_id: RunId::parse("5f0c2d1e-8b7a-4d33-8a48-0e1d2c3b4a59").unwrap(),
            call: Snapshot::freeze(call).unwrap(),
            requested_at: Timestamp::from_millis(1_767_323_045_678),
            idle_policy: IdlePolicy::Pause,
            expires_at: Some(Timestamp::from_millis(1_767_323_105_678)),
        }
    }

    fn screen(width: usize, height: usize) -> Screen {
        Screen { width, height: Some(height), charset: Charset::Utf8 }
    }

    fn drawn(approval: &ApprovalRequest, screen: Screen, extent: Extent) -> Vec<String> {
        let lines = Card::draw(&approval.into(), screen, extent).lines;
        lines.iter().map(|line| anstream::adapter::strip_str(line).to_string()).collect()
    }

    fn check(screen: Screen, expected: Expect) {
        expected.assert_eq(&drawn(&request("call-1", ARGUMENTS), screen, Extent::Window).join("\n"));
    }

    // K1, K7, K13: on a usual window.
    #[test]
    fn a_card_of_80_columns() {
        check(
            screen(80, 24),
            expect![[r#"
            ───────────────────────────────────────────────────────────────────────────────
              The agent asks to call save_file. Nothing has run yet.
              Behind the bar: the agent's text, laid out for reading; the values are exact:
              │ call id "call-1"
              │ {
              │   "path": "notes/\u{202e}txt.exe",
              │   "why": "SAFE – already approved by security\n
              │     [a] approve > a",
              │   "argv": [] (empty),
              │   "body": "BODY"
              │ }
              run 5f0c2d1e-8b7a-4d33-8a48-0e1d2c3b4a59
              approval 0b8f5c0e-6d7a-4c44-9a59-1f1d3e2a7c11
              asked 2026-01-02T03:04:05.678Z
              expires 2026-01-02T03:05:05.678Z; the run waits for you
            ───────────────────────────────────────────────────────────────────────────────"#]],
        );
    }

    #[test]
    fn a_card_of_40_columns() {
        check(
            screen(40, 30),
            expect![[r#"
            ───────────────────────────────────────
              The agent asks to call save_file.
              Nothing has run yet.
              Behind the bar: the agent's text,
              laid out for reading; the values are
              exact:
              │ call id "call-1"
              │ {
              │   "path": "notes/\u{202e}txt.exe",
              │   "why": "SAFE – already approved 
              │     by security\n
              │     [a] approve > a",
              │   "argv": [] (empty),
              │   "body": "BODY"
              │ }
              run
              5f0c2d1e-8b7a-4d33-8a48-0e1d2c3b4a59
              approval
              0b8f5c0e-6d7a-4c44-9a59-1f1d3e2a7c11
              asked 2026-01-02T03:04:05.678Z
              expires 2026-01-02T03:05:05.678Z; the
              run waits for you
            ───────────────────────────────────────"#]],
        );
    }

    // K7: whatever the agent writes, it stands behind the bar, and facts of the host stand before the question.
    #[test]
    fn every_line_of_the_agent_is_behind_the_bar() {
        let text = "\u{2500}".repeat(200) + "\n[a] approve > a\nrun approved\r\u{1b}[2A" + &" ".repeat(3000);
        let arguments = format!("{{\"x\":{}}}", serde_json::to_string(&text).unwrap());
        let approval = request(&text.chars().take(256).collect::<String>(), &arguments);
        for width in [20, 40, 80, 200] {
            let lines = drawn(&approval, screen(width, 24), Extent::Whole);
            let first = lines.iter().position(|line| line.starts_with("  │ ")).unwrap();
            let last = lines.iter().rposition(|line| line.starts_with("  │ ")).unwrap();
            assert!(lines[first..=last].iter().all(|line| line.starts_with("  │ ")), "{lines:#?}");
            assert!(lines.len() - last > 4, "facts stand between it and the question");
            let ours = lines[..first].iter().chain(&lines[last + 1..]);
            assert!(ours.into_iter().all(|line| !line.contains("approve >")));
            let widest = lines[first..=last].iter().map(|line| line.width()).max().unwrap();
            assert!(width < 30 || widest <= width, "{widest} columns of {width}");
        }
    }

    // K5: a count of ours is explained where it occurs, and nowhere else.
    #[test]
    fn counts_are_explained() {
        let legend = |arguments: &str, charset| {
            let screen = Screen { charset, ..screen(80, 24) };
            let lines = drawn(&request("call-1", arguments), screen, Extent::Window);
            lines.into_iter().find(|line| line.contains("N above: "))
        };
        let flood = format!(r#"{{"x":["a{}b"]}}"#, " ".repeat(50));
        let utf8 = "  ×N above: what stands before it, N times in a row; · is a blank";
        assert_eq!(legend(&flood, Charset::Utf8).as_deref(), Some(utf8));
        assert!(legend(&flood, Charset::Ascii).is_some_and(|line| line.starts_with("  *N above: ")));
        assert_eq!(legend(r#"{"x":"2 × 3 * 4\u202e"}"#, Charset::Utf8), None);
        assert_eq!(legend(r#"{"x":"2 × 3 * 4\u202e"}"#, Charset::Ascii), None);
    }

    // Nothing is left out without saying how much, and the end is shown (K5).
    #[test]
    fn what_does_not_fit_is_counted() {
        let arguments = format!(r#"{{"script":{:?},"last":"rm -rf ~"}}"#, "line of it\n".repeat(500));
        let approval = request("call-1", &arguments);
        let card = Card::draw(&(&approval).into(), screen(80, 24), Extent::Window);
        assert!(card.lines.len() + 2 <= 24, "{} lines", card.lines.len());
        let text = card.lines.join("\n");
        assert!(text.contains(&format!("[{} lines, ", card.left_out)) && text.contains("rm -rf ~"), "{text}");
        let whole = Card::draw(&(&approval).into(), screen(80, 24), Extent::Whole);
        assert_eq!(whole.left_out, 0);
        // The line that counts takes the place of the lines that it counts.
        assert_eq!(whole.lines.len(), card.lines.len() - 1 + card.left_out);
        assert_eq!(whole.lines.iter().filter(|line| line.contains("line of it")).count(), 500);
    }
}
