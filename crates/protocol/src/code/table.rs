//! The table of codes (contract 5.2 and 5.3), one line a code, in the contract's order.

use std::borrow::Cow;

use super::{Code, Known};

macro_rules! codes {
    ($($name:ident => $status:literal, $retryable:literal, $message:literal;)*) => {
        impl Code {
            $(
                #[doc = concat!("`", stringify!($name), "` (HTTP ", stringify!($status), "). ", $message)]
                pub const $name: Self = Self(Cow::Borrowed(stringify!($name)));
            )*
        }

        pub(super) const KNOWN: &[Known] = &[
            $(Known { code: Code::$name, status: $status, retryable: $retryable, message: $message },)*
        ];
    };
}

codes! {
    INVALID_REQUEST => 400, false, "The request is not valid.";
    INVALID_SCHEMA => 400, false, "The JSON Schema is not valid here.";
    UNKNOWN_PROVIDER => 400, false, "The host has no provider with this id.";
    UNKNOWN_TOOL => 400, false, "The host has no tool with this name.";
    UNSUPPORTED_MODEL => 400, false, "The provider does not offer this model here.";
    UNSUPPORTED_TOOLS => 400, false, "The provider cannot use tools.";
    UNSUPPORTED_CAPABILITY => 400, false, "The provider lacks a capability that the request needs.";
    UNSUPPORTED_PROTOCOL_VERSION => 400, false, "This protocol version is not supported; 1.0 is.";
    IDEMPOTENCY_UNAVAILABLE => 400, false, "The host keeps no operations, so it cannot honour an idempotency key.";
    INVALID_APPROVAL => 400, false, "The decision is not valid.";
    APPROVAL_UNAVAILABLE => 400, false, "Interactive approvals are switched off on this host.";
    APPROVAL_POLICY => 400, false, "The host does not allow this approval option.";
    APPROVAL_STREAM_REQUIRED => 400, false, "Interactive approvals need a streaming run.";
    INVALID_TOOL_EXECUTION => 400, false, "The tool execution report is not valid.";
    INVALID_TOOL_OUTPUT => 400, false, "The tool's output does not have the declared shape.";
    TOOL_OUTPUT_LIMIT => 400, false, "The tool's output is too large.";
    TOOL_DEFINITION_LIMIT => 400, false, "A tool definition is too large.";
    APPLICATION_TOOLS_UNAVAILABLE => 400, false, "Application tools are not available on this host.";
    TOOL_STREAM_REQUIRED => 400, false, "Application tools need a streaming run.";
    INVALID_RETRIEVAL => 400, false, "The retrieval request is not valid.";
    RETRIEVAL_UNAVAILABLE => 400, false, "Retrieval is not available on this host.";
    NO_RETRIEVAL_EVIDENCE => 400, false, "Nothing relevant was found.";
    SESSIONS_UNAVAILABLE => 400, false, "Sessions are not available on this host.";
    INVALID_SESSION => 400, false, "The session request is not valid.";
    UNSUPPORTED_CONTINUATION => 400, false, "The provider cannot continue this conversation.";
    SESSION_ACCOUNT_REQUIRED => 400, false, "The session needs a provider account.";
    SESSION_HISTORY_CONFLICT => 400, false, "A session keeps its own history.";
    SESSION_CONTEXT_UNSUPPORTED => 400, false, "The session cannot take this context.";
    SESSION_CONTEXT_LIMIT => 400, false, "The session is too long.";
    INVALID_SESSION_STATE => 400, false, "The session's state is not valid.";
    INVALID_CONFIG => 400, false, "The configuration is not valid.";
    UNSUPPORTED_CONFIGURATION => 400, false, "The configuration is not supported.";
    INVALID_INVITATION => 400, false, "The invitation is not valid.";
    INVALID_SETUP_REQUEST => 400, false, "The set-up request is not valid.";
    INVALID_RUNTIME_REQUEST => 400, false, "The runtime request is not valid.";

    UNAUTHORIZED => 401, false, "A valid bearer token is required.";
    INVITATION_REJECTED => 401, false, "The invitation was not accepted.";

    FORBIDDEN => 403, false, "The token does not grant this.";
    ORIGIN_DENIED => 403, false, "This origin is not allowed.";
    APPROVAL_REQUIRED => 403, false, "The call needs an approval that was not given.";
    APPROVAL_DENIED => 403, false, "A person refused the call.";
    RESOURCE_LIMIT => 403, false, "A resource limit is reached.";
    RESOURCE_USAGE_UNKNOWN => 403, false, "The usage so far is unknown, so the limit cannot be checked.";
    RESOURCE_ADMISSION_DENIED => 403, false, "The run was not admitted.";

    NOT_FOUND => 404, false, "There is nothing here.";
    APPROVAL_NOT_FOUND => 404, false, "No approval with this id is waiting for a decision by this subject.";
    TOOL_EXECUTION_NOT_FOUND => 404, false, "No such tool execution is waiting.";
    SESSION_NOT_FOUND => 404, false, "There is no such session.";
    JOB_NOT_FOUND => 404, false, "There is no such job.";
    SETUP_NOT_FOUND => 404, false, "There is no such set-up.";
    RUNTIME_NOT_FOUND => 404, false, "There is no such runtime.";

    APPROVAL_MISMATCH => 409, false, "The decision differs from the reviewed call.";
    TOOL_EXECUTION_MISMATCH => 409, false, "The report differs from the requested execution.";
    TOOL_DEFINITION_CONFLICT => 409, false, "A tool definition repeats another tool's name.";
    IDEMPOTENCY_CONFLICT => 409, false, "The idempotency key was used for another request.";
    OPERATION_IN_PROGRESS => 409, true, "An operation with this key is running.";
    OPERATION_UNCERTAIN => 409, false, "It cannot be known how this operation ended.";
    TOOL_OUTCOME_UNCERTAIN => 409, false, "It cannot be known whether the tool took effect (the host's log has the cause).";
    SOURCE_CONFLICT => 409, false, "The source conflicts with another.";
    CHUNK_CONFLICT => 409, false, "The chunk conflicts with another.";
    INDEX_INCOMPATIBLE => 409, false, "The index is not compatible.";
    SESSION_REVISION_CONFLICT => 409, false, "The session has another revision.";
    SESSION_BUSY => 409, false, "The session is in use.";
    SESSION_INTERRUPTED => 409, false, "The session was interrupted.";
    SESSION_PROVIDER_MISMATCH => 409, false, "The session belongs to another provider.";
    SESSION_ACCOUNT_CHANGED => 409, false, "The session's account has changed.";
    JOB_EVENT_CONFLICT => 409, false, "The job's events conflict.";
    JOB_ACCOUNT_CHANGED => 409, false, "The job's account has changed.";
    CONFIG_CONFLICT => 409, false, "The configuration has changed meanwhile.";
    CONFIG_BUSY => 409, false, "The configuration is in use.";
    PROVIDER_IDENTITY_CHANGED => 409, false, "The provider's identity has changed.";

    JOB_EXPIRED => 410, false, "The job has expired.";

    BODY_TOO_LARGE => 413, false, "The request body is larger than 1,000,000 bytes.";

    BUSY => 429, true, "All run slots are taken.";
    QUEUE_FULL => 429, true, "The queue is full.";
    RATE_LIMITED => 429, true, "Too many requests; wait and try again.";
    APPROVAL_CAPACITY => 429, true, "As many approvals are waiting as the host allows.";
    TOOL_EXECUTOR_CAPACITY => 429, true, "As many tool executions are waiting as the host allows.";
    SESSION_CAPACITY => 429, false, "As many sessions exist as the host allows.";
    JOB_STORE_FULL => 429, false, "The job store is full.";
    JOB_WORKER_BUSY => 429, false, "All job workers are busy.";
    SETUP_CAPACITY => 429, false, "As many set-ups are open as the host allows.";
    CONNECTION_CAPACITY => 429, false, "As many connections exist as the host allows.";

    INTERNAL_ERROR => 500, false, "The host failed.";

    APPROVAL_AUDIT_FAILED => 503, false, "The audit record was not accepted, so nothing was done.";
    OPERATION_STORE_ERROR => 503, false, "The operation store failed.";
    OPERATION_STORE_FULL => 503, false, "The operation store is full.";
    OPERATION_RECORD_LIMIT => 503, false, "The operation's record is too large.";
    HOST_STARTING => 503, true, "The host is starting.";
    HOST_SHUTTING_DOWN => 503, true, "The host is shutting down.";
    RESOURCE_POLICY_UNAVAILABLE => 503, false, "The resource policy cannot be consulted.";
    ADMISSION_IDENTITY_REQUIRED => 503, false, "Admission needs an identity.";
    AUTH_UNAVAILABLE => 503, false, "Authentication is not available.";
    INVALID_AUTH_POLICY => 503, false, "The authentication policy is not valid.";
    JOBS_UNAVAILABLE => 503, false, "Jobs are not available on this host.";
    JOB_STORE_ERROR => 503, false, "The job store failed.";
    JOB_STORE_CLOSED => 503, false, "The job store is closed.";
    JOB_LEASE_LOST => 503, false, "The job's lease was lost.";
    CONFIG_WRITE_FAILED => 503, false, "The configuration could not be written.";
    CONNECTION_STORE_BUSY => 503, false, "The connection store is busy.";
    CONNECTION_STORE_UNAVAILABLE => 503, false, "The connection store is not available.";

    IDLE_TIMEOUT => 504, true, "Nothing happened for as long as the idle limit allows.";
    TIMEOUT => 504, false, "The request took too long.";

    CANCELLED => 502, false, "The run was cancelled.";
    APPROVAL_EXPIRED => 502, false, "Nobody decided in time.";
    STEP_LIMIT => 502, false, "The model still called tools in its last permitted step.";
    TOOL_LIMIT => 502, false, "The model called too many tools at once.";
    TOOL_NOT_ALLOWED => 502, false, "The model called a tool that this run may not use.";
    INVALID_TOOL_CALL => 502, false, "The model's call cannot be carried exactly, or repeats an id.";
    INVALID_TOOL_ARGUMENTS => 502, false, "The model's arguments do not have the tool's shape.";
    TOOL_FAILED => 502, false, "The tool failed.";
    INVALID_OUTPUT => 502, false, "The model's answer does not have the wanted shape.";
    OUTPUT_BUFFER_LIMIT => 502, false, "The events were not read fast enough.";
    RESPONSE_TOO_LARGE => 502, false, "The answer is too large.";
    INCOMPLETE_STREAM => 502, false, "The stream ended before its last event.";
    AUTH_REQUIRED => 502, false, "A credential is missing.";
    PROVIDER_AUTH => 502, false, "The provider did not accept the credential.";
    PROVIDER_UNREACHABLE => 502, true, "The provider cannot be reached.";
    PROVIDER_ERROR => 502, false, "The provider answered with an error.";
    PROVIDER_FAILED => 502, false, "The provider failed.";
    PROVIDER_REFUSAL => 502, false, "The provider refused to answer.";
    INVALID_PROVIDER_RESPONSE => 502, false, "The provider's answer is not valid.";
    TRUNCATED_TOOL_CALL => 502, false, "The model's call was cut off by the length limit.";
    INVALID_ARTIFACT => 502, false, "The artifact is not valid.";
    INVALID_CONTEXT => 502, false, "The context is not valid.";
    CONTEXT_UNAVAILABLE => 502, false, "The context is not available.";
    CONTEXT_CHANGED => 502, false, "The context has changed.";
    CONTEXT_REPLAY_UNAVAILABLE => 502, false, "The context cannot be replayed.";
    UNSUPPORTED_MODALITY => 502, false, "The model does not take this kind of input.";
    JOB_INTERRUPTED => 502, false, "The job was interrupted.";

    INVALID_RESPONSE => 502, false, "The host's answer does not have the protocol's shape.";
    INVALID_STREAM => 502, false, "The host's stream breaks the protocol.";
    UNSUPPORTED_EVENT => 502, false, "The host sent an event that this client cannot ignore and does not know.";

    INSECURE_TRANSPORT => 502, false, "Plain HTTP is allowed on loopback only.";
    INVALID_SCHEDULING => 502, false, "The scheduling options are not valid.";
    INVALID_TLS => 502, false, "The certificate and key cannot be used.";
    SECRET_PERMISSIONS => 502, false, "Others may read the secret's file.";
    SECRET_TOO_LARGE => 502, false, "The secret's file is too large.";
    SECRET_UNAVAILABLE => 502, false, "The secret cannot be read.";
    TLS_REQUIRED => 502, false, "An address other than loopback needs TLS.";
    USAGE_IDENTITY_REQUIRED => 502, false, "An account needs a usage host id.";
}
