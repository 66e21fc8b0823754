//! A tool that is a command (design 7).

use async_trait::async_trait;
use countersign_approval_core::audit::BoxError;
use countersign_driver::{Input, Output, Tool, ToolContext, ToolSpec};

use crate::command::{Call, Program};

/// One entry of `tools`.
pub(crate) struct CommandTool {
    pub(crate) spec: ToolSpec,
    pub(crate) program: Program,
}

#[async_trait]
impl Tool for CommandTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn execute(&self, input: Input, context: ToolContext) -> Result<Output, BoxError> {
        let call = Call {
            run_id: context.run_id.to_string(),
            call_id: context.call_id.as_str(),
            // Nothing here repeats a call.
            attempt: 1,
            subject: context.subject.as_str(),
            cancellation: &context.cancellation,
        };
        Ok(Output::from_text(&self.program.run(input.text(), &call).await?)?)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use countersign_approval_core::ids::{CallId, RunId, Subject};
    use countersign_approval_core::json::Exact;

    use super::*;
    use crate::command::Failure;

    // Law 5: a run that ended while the input was written starts nothing.
    #[tokio::test]
    async fn a_run_that_has_ended_starts_no_command() {
        let folder = tempfile::tempdir().unwrap();
        let program = Program {
            name: "touch".into(),
            path: "/bin/sh".into(),
            arguments: vec!["-c".into(), "trap '' TERM; echo > ran".into()],
            folder: folder.path().to_owned(),
            timeout: None,
            extra: BTreeMap::new(),
        };
        let tool = CommandTool { spec: ToolSpec::new("touch", "", "{}").unwrap(), program };
        let run_id = RunId::parse("7b0f6c0e-4b0c-4a64-9d0c-0f5c5d0b6a11").unwrap();
        let context = ToolContext::detached(run_id, CallId::parse("call-1").unwrap(), Subject::local());
        context.cancellation.cancel();
        let error = tool.execute(Input::new(Exact::parse("{}").unwrap()), context).await.unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(Failure::NotStarted)), "{error}");
        assert!(!folder.path().join("ran").exists());
    }
}
