//! The table of codes against the contract's section 5, transcribed here a second time.

use countersign_approval_core::Error as ApprovalError;
use countersign_protocol::code::{Code, ErrorBody, ErrorInfo, UncertainOutcome};
use countersign_protocol::decode;
use expect_test::expect;

/// Contract 5.2, row by row; the last row is the paragraph below the table.
const ROWS: &[(u16, &str)] = &[
    (
        400,
        "INVALID_REQUEST INVALID_SCHEMA UNKNOWN_PROVIDER UNKNOWN_TOOL UNSUPPORTED_MODEL UNSUPPORTED_TOOLS \
         UNSUPPORTED_CAPABILITY UNSUPPORTED_PROTOCOL_VERSION IDEMPOTENCY_UNAVAILABLE INVALID_APPROVAL \
         APPROVAL_UNAVAILABLE APPROVAL_POLICY APPROVAL_STREAM_REQUIRED INVALID_TOOL_EXECUTION \
         INVALID_TOOL_OUTPUT TOOL_OUTPUT_LIMIT TOOL_DEFINITION_LIMIT APPLICATION_TOOLS_UNAVAILABLE \
         TOOL_STREAM_REQUIRED INVALID_RETRIEVAL RETRIEVAL_UNAVAILABLE NO_RETRIEVAL_EVIDENCE \
         SESSIONS_UNAVAILABLE INVALID_SESSION UNSUPPORTED_CONTINUATION SESSION_ACCOUNT_REQUIRED \
         SESSION_HISTORY_CONFLICT SESSION_CONTEXT_UNSUPPORTED SESSION_CONTEXT_LIMIT INVALID_SESSION_STATE \
         INVALID_CONFIG UNSUPPORTED_CONFIGURATION INVALID_INVITATION INVALID_SETUP_REQUEST \
         INVALID_RUNTIME_REQUEST",
    ),
    (401, "UNAUTHORIZED INVITATION_REJECTED"),
    (
        403,
        "FORBIDDEN ORIGIN_DENIED APPROVAL_REQUIRED APPROVAL_DENIED RESOURCE_LIMIT RESOURCE_USAGE_UNKNOWN \
         RESOURCE_ADMISSION_DENIED",
    ),
    (
        404,
        "NOT_FOUND APPROVAL_NOT_FOUND TOOL_EXECUTION_NOT_FOUND SESSION_NOT_FOUND JOB_NOT_FOUND \
         SETUP_NOT_FOUND RUNTIME_NOT_FOUND",
    ),
    (
        409,
        "APPROVAL_MISMATCH TOOL_EXECUTION_MISMATCH TOOL_DEFINITION_CONFLICT IDEMPOTENCY_CONFLICT \
         OPERATION_IN_PROGRESS OPERATION_UNCERTAIN TOOL_OUTCOME_UNCERTAIN SOURCE_CONFLICT CHUNK_CONFLICT \
         INDEX_INCOMPATIBLE SESSION_REVISION_CONFLICT SESSION_BUSY SESSION_INTERRUPTED \
         SESSION_PROVIDER_MISMATCH SESSION_ACCOUNT_CHANGED JOB_EVENT_CONFLICT JOB_ACCOUNT_CHANGED \
         CONFIG_CONFLICT CONFIG_BUSY PROVIDER_IDENTITY_CHANGED",
    ),
    (410, "JOB_EXPIRED"),
    (413, "BODY_TOO_LARGE"),
    (
        429,
        "BUSY QUEUE_FULL RATE_LIMITED APPROVAL_CAPACITY TOOL_EXECUTOR_CAPACITY SESSION_CAPACITY \
         JOB_STORE_FULL JOB_WORKER_BUSY SETUP_CAPACITY CONNECTION_CAPACITY",
    ),
    (500, "INTERNAL_ERROR"),
    (
        503,
        "APPROVAL_AUDIT_FAILED OPERATION_STORE_ERROR OPERATION_STORE_FULL OPERATION_RECORD_LIMIT \
         HOST_STARTING HOST_SHUTTING_DOWN RESOURCE_POLICY_UNAVAILABLE ADMISSION_IDENTITY_REQUIRED \
         AUTH_UNAVAILABLE INVALID_AUTH_POLICY JOBS_UNAVAILABLE JOB_STORE_ERROR JOB_STORE_CLOSED \
         JOB_LEASE_LOST CONFIG_WRITE_FAILED CONNECTION_STORE_BUSY CONNECTION_STORE_UNAVAILABLE",
    ),
    (504, "IDLE_TIMEOUT TIMEOUT"),
    (
        502,
        "CANCELLED APPROVAL_EXPIRED STEP_LIMIT TOOL_LIMIT TOOL_NOT_ALLOWED INVALID_TOOL_CALL \
         INVALID_TOOL_ARGUMENTS TOOL_FAILED INVALID_OUTPUT OUTPUT_BUFFER_LIMIT RESPONSE_TOO_LARGE \
         INCOMPLETE_STREAM AUTH_REQUIRED PROVIDER_AUTH PROVIDER_UNREACHABLE PROVIDER_ERROR PROVIDER_FAILED \
         PROVIDER_REFUSAL INVALID_PROVIDER_RESPONSE TRUNCATED_TOOL_CALL INVALID_ARTIFACT INVALID_CONTEXT \
         CONTEXT_UNAVAILABLE CONTEXT_CHANGED CONTEXT_REPLAY_UNAVAILABLE UNSUPPORTED_MODALITY",
    ),
];

/// Contract 5.3. `PROVIDER_ERROR` is retryable only for a vendor's status of 500 and more, which its adapter knows.
const RETRYABLE: &str = "BUSY QUEUE_FULL OPERATION_IN_PROGRESS APPROVAL_CAPACITY TOOL_EXECUTOR_CAPACITY \
                         HOST_STARTING HOST_SHUTTING_DOWN IDLE_TIMEOUT RATE_LIMITED PROVIDER_UNREACHABLE";

#[test]
fn every_code_of_the_contract_has_its_status() {
    for (status, codes) in ROWS {
        for name in codes.split_whitespace() {
            let code = Code::from(name.to_owned());
            let known = Code::known().iter().find(|known| known.code == code);
            assert!(known.is_some(), "{name} is not in the table");
            assert_eq!(code.status(), *status, "{name}");
            assert_eq!(code.retryable(), RETRYABLE.split_whitespace().any(|r| r == name), "{name}");
        }
    }
}

#[test]
fn no_code_stands_twice_and_each_has_a_sentence() {
    let mut names: Vec<_> = Code::known().iter().map(|known| known.code.as_str()).collect();
    names.sort_unstable();
    let all = names.len();
    names.dedup();
    assert_eq!(names.len(), all);
    for known in Code::known() {
        assert!(known.message.ends_with('.'), "{}: {}", known.code, known.message);
    }
}

/// Codes beyond the contract's tables are those of the client (10.2) and of start-up (6); all fall through to 502.
#[test]
fn other_codes_are_502() {
    let listed: Vec<_> = ROWS.iter().flat_map(|(_, codes)| codes.split_whitespace()).collect();
    for known in Code::known().iter().filter(|known| !listed.contains(&known.code.as_str())) {
        assert_eq!((known.status, known.retryable), (502, false), "{}", known.code);
    }
    assert_eq!(Code::from("FUTURE_PROVIDER_CONDITION".to_owned()).status(), 502);
    assert!(!Code::from("FUTURE_PROVIDER_CONDITION".to_owned()).retryable());
}

/// Contract 5.1 and 5.4: the shape, `outcome` omitted unless uncertain, and uncertain is never retryable.
#[test]
fn error_shapes() {
    let write = |info: ErrorInfo| serde_json::to_string(&ErrorBody::from(info)).unwrap();
    expect![[r#"{"error":{"code":"IDLE_TIMEOUT","message":"Nothing happened for as long as the idle limit allows.","retryable":true}}"#]]
        .assert_eq(&write(ErrorInfo::new(Code::IDLE_TIMEOUT)));
    expect![[
        r#"{"error":{"code":"IDLE_TIMEOUT","message":"Stopped","retryable":false,"outcome":"uncertain"}}"#
    ]]
    .assert_eq(&write(ErrorInfo::new(Code::IDLE_TIMEOUT).with_message("Stopped").uncertain()));
}

/// Law 8: whoever shows an error as text shows that its outcome is uncertain.
#[test]
fn the_text_of_an_error_says_uncertain() {
    let info = ErrorInfo::new(Code::IDLE_TIMEOUT).with_message("Stopped.");
    assert_eq!(info.to_string(), "IDLE_TIMEOUT: Stopped.");
    assert_eq!(info.uncertain().to_string(), "IDLE_TIMEOUT: Stopped. (outcome uncertain)");
}

/// Law 4 and contract 4.8: the private cause of a failed audit stays inside.
#[test]
fn approval_errors_become_public_errors() {
    let error = ApprovalError::AuditFailed("disk /secret is full".into());
    let info = ErrorInfo::from(&error);
    assert_eq!(
        (info.code.clone(), info.code.status(), info.retryable),
        (Code::APPROVAL_AUDIT_FAILED, 503, false)
    );
    assert!(!info.message.contains("secret"));
    let info = ErrorInfo::from(&ApprovalError::Capacity { limit: 7 });
    assert_eq!((info.code, info.retryable), (Code::APPROVAL_CAPACITY, true));
}

/// Contract 10.3 `unknown-error-code`, and the shapes that every client refuses (5.1).
#[test]
fn error_bodies_are_read_strictly_and_codes_stay_open() {
    let read = |error: &str| decode::<ErrorBody>(&format!(r#"{{"error":{error}}}"#)).map(|body| body.error);
    let info =
        read(r#"{"code":"FUTURE_PROVIDER_CONDITION","message":"m","retryable":true,"futureField":true}"#);
    let info = info.unwrap();
    assert_eq!((info.code.as_str(), info.retryable, info.outcome), ("FUTURE_PROVIDER_CONDITION", true, None));
    let info = read(r#"{"code":"A","message":"","retryable":false,"outcome":"uncertain"}"#).unwrap();
    assert_eq!(info.outcome, Some(UncertainOutcome::Uncertain));
    for refused in [
        r#"{"code":"","message":"m","retryable":true}"#,
        r#"{"code":"A","retryable":true}"#,
        r#"{"code":"A","message":null,"retryable":true}"#,
        r#"{"code":"A","message":"m"}"#,
        r#"{"code":"A","message":"m","retryable":1}"#,
        r#"{"code":"A","message":"m","retryable":true,"outcome":null}"#,
        r#"{"code":"A","message":"m","retryable":true,"outcome":{}}"#,
        r#"{"code":"A","message":"m","retryable":true,"outcome":"certain"}"#,
        r#"{"code":"A","message":"m","retryable":true,"x":1,"x":1}"#,
        "null",
    ] {
        assert!(read(refused).is_err(), "{refused}");
    }
}
