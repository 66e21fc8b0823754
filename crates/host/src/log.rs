//! One line of level `debug` for each request: what was asked, and how it was answered.
//!
//! A request that is about a run or a review names it, as the driver's spans do, so that the two can be put together.
//! Nothing that the peer chose is in it: methods and paths are those that we know, or `other`.

use countersign_approval_core::ids::{ApprovalId, RunId};
use countersign_protocol::code::ErrorInfo;
use countersign_protocol::version;
use http::{Method, Request};
use tracing::{Level, debug, enabled, field};

use crate::metrics;
use crate::respond::Answer;

/// What an answer is about, kept with it until it is logged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct About {
    pub(crate) run: RunId,
    pub(crate) approval: Option<ApprovalId>,
}

impl About {
    /// Puts it on the answer, if the log is to have it.
    pub(crate) fn on(self, mut answer: Answer) -> Answer {
        if enabled!(Level::DEBUG) {
            answer.extensions_mut().insert(self);
        }
        answer
    }
}

/// What was asked, if the log is to have it.
pub(crate) struct Asked(Option<(&'static str, &'static str)>);

impl Asked {
    pub(crate) fn of<B>(request: &Request<B>) -> Self {
        // Asked first, so that a request that nobody logs costs nothing.
        Self(enabled!(Level::DEBUG).then(|| (method(request.method()), path(request))))
    }

    pub(crate) fn answered(self, mut answer: Answer) -> Answer {
        let about = answer.extensions_mut().remove::<About>();
        if let Some((method, path)) = self.0 {
            let run = about.map(|about| field::display(about.run));
            let approval = about.and_then(|about| about.approval).map(field::display);
            debug!(
                method,
                path,
                status = answer.status().as_u16(),
                runId = run,
                approvalId = approval,
                "answered"
            );
        }
        answer
    }

    pub(crate) fn refused(self, info: &ErrorInfo) {
        if let Some((method, path)) = self.0 {
            debug!(method, path, status = info.code.status(), code = info.code.as_str(), "refused");
        }
    }
}

const fn method(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

fn path<B>(request: &Request<B>) -> &'static str {
    const KNOWN: [&str; 9] = [
        version::HEALTH_PATH,
        version::PROTOCOL_PATH,
        version::PROVIDERS_PATH,
        version::PROVIDERS_REFRESH_PATH,
        version::RUNS_PATH,
        version::DECISIONS_PATH,
        version::TOOL_PROGRESS_PATH,
        version::TOOL_RESULTS_PATH,
        metrics::PATH,
    ];
    let asked = request.uri().path_and_query().map_or("", |path| path.as_str());
    KNOWN.into_iter().find(|known| *known == asked).unwrap_or("other")
}
