//! Entries as `audit show` gets them, and hostile files (law 9, R5).

use countersign_approval_core::audit::{AuditRecord, AuditSink, Execution, ExecutionOutcome};
use countersign_approval_core::clock::Timestamp;
use countersign_approval_core::ids::{CallId, ProviderId, Subject};
use countersign_approval_core::json::Digest;
use countersign_store::audit_file::{Entry, Reader, verify_reader};
use expect_test::{Expect, expect};
use proptest::prelude::*;

use crate::memory::Disk;
use crate::support::{
    approval_id, file_of, lines, open, rechain, requested_with, resolved, run_id, sample, tagged,
};

fn entries(file: &[u8]) -> Vec<Entry> {
    Reader::new(file).map(Result::unwrap).collect()
}

fn check(record: &AuditRecord, expected: Expect) {
    let all = entries(&file_of(std::slice::from_ref(record)));
    assert_eq!(&*all[0].record, serde_json::to_string(record).unwrap(), "the record stands there as it is");
    expected.assert_eq(&shown(&all[0]));
}

/// The members that are there.
fn shown(entry: &Entry) -> String {
    let members = [
        ("subject", entry.subject.as_deref()),
        ("provider", entry.provider.as_deref()),
        ("run", entry.run_id.as_deref()),
        ("approval", entry.approval_id.as_deref()),
        ("call", entry.call_id.as_deref()),
        ("tool", entry.tool.as_deref()),
        ("arguments", entry.arguments.as_deref()),
        ("outcome", entry.outcome.as_deref()),
        ("code", entry.code.as_deref()),
        ("digest", entry.digest.as_deref().map(|digest| &digest[..11])),
    ];
    let members = members.iter().filter_map(|(name, value)| Some(format!("\n{name}={}", (*value)?)));
    format!("{} {} {}", entry.n, entry.at, entry.kind) + &members.collect::<String>()
}

/// Law 3: the spelling of the provider's tokens, to the letter.
#[test]
fn arguments_are_as_they_were_reviewed() {
    let arguments = r#"{"n":1.0,"s":"\u003c\u001b[2K","z":-0,"big":9007199254740992}"#;
    check(
        &requested_with(1, arguments),
        expect![[r#"
            1 2026-01-02T03:04:05.001Z approval.requested
            subject=ada
            provider=mock
            run=6f0c0000-0000-4000-8000-000000000001
            approval=0b1d0000-0000-4000-8000-000000000001
            call=call-1
            tool=transfer
            arguments={"n":1.0,"s":"\u003c\u001b[2K","z":-0,"big":9007199254740992}
            digest=sha256:1039"#]],
    );
}

#[test]
fn each_kind_says_what_it_knows() {
    check(
        &resolved(1),
        expect![[r#"
        1 2026-01-02T03:04:05.001Z approval.resolved
        subject=ada
        provider=mock
        run=6f0c0000-0000-4000-8000-000000000001
        approval=0b1d0000-0000-4000-8000-000000000001
        call=call-1
        tool=transfer
        arguments={"to":"b","amount":1}
        outcome=approved
        digest=sha256:0fe2"#]],
    );
    check(
        &tagged("what\never"),
        expect![[r#"
        1 2026-01-02T03:04:05.001Z approval.rejected
        subject=eve
        approval=what
        ever
        code=APPROVAL_NOT_FOUND"#]],
    );
    let execution = Execution {
        subject: Subject::local(),
        provider: ProviderId::parse("mock").unwrap(),
        run_id: run_id(1),
        approval_id: None,
        call_id: CallId::parse("call-1").unwrap(),
        digest: Digest::of(b""),
        at: Timestamp::from_millis(0),
    };
    check(
        &AuditRecord::ExecutionStarted(execution.clone()),
        expect![[r#"
        1 2026-01-02T03:04:05.001Z execution.started
        subject=local
        provider=mock
        run=6f0c0000-0000-4000-8000-000000000001
        call=call-1
        digest=sha256:e3b0"#]],
    );
    check(
        &AuditRecord::ExecutionFinished { execution, outcome: ExecutionOutcome::Uncertain },
        expect![[r#"
        1 2026-01-02T03:04:05.001Z execution.finished
        subject=local
        provider=mock
        run=6f0c0000-0000-4000-8000-000000000001
        call=call-1
        outcome=uncertain
        digest=sha256:e3b0"#]],
    );
    check(
        &AuditRecord::Abandoned { approval_id: approval_id(1), run_id: run_id(1) },
        expect![[r#"
        1 2026-01-02T03:04:05.001Z approval.abandoned
        run=6f0c0000-0000-4000-8000-000000000001
        approval=0b1d0000-0000-4000-8000-000000000001"#]],
    );
    check(
        &AuditRecord::Recovered { torn_bytes: 3, moved_to: "a.torn".into() },
        expect!["1 2026-01-02T03:04:05.001Z recovered"],
    );
}

/// A file that a later version wrote: the writer goes on with it, and the reader shows what it understands.
#[test]
fn unknown_kinds_and_members_are_borne() {
    let mut all = lines(&sample());
    let (envelope, _) = all[2].split_once("\"record\":").unwrap();
    all[2] = format!(
        r#"{envelope}"record":{{"type":"approval.batch.requested","subject":7,"runId":null,"approval":"text","resolution":[],"digest":"\ud800","rows":[{{"n":1e999}}],"deep":{}}}}}"#,
        "[".repeat(5000) + &"]".repeat(5000)
    );
    let file = rechain(&all, 3);
    assert_eq!(shown(&entries(&file)[2]), "3 2026-01-02T03:04:05.003Z approval.batch.requested");
    let disk = Disk::with(&file);
    let (audit, recovery) = open(&disk).unwrap();
    assert_eq!(recovery.abandoned.len(), 1);
    audit.record(&tagged("after")).unwrap();
    assert_eq!(entries(&disk.bytes()).len(), 8);
}

/// A reader gives what is good, then the error, then nothing.
#[test]
fn reading_ends_at_the_first_bad_line() {
    let mut all = lines(&sample());
    all[3] = "{}".into();
    let file = all.join("\n");
    let read: Vec<_> = Reader::new(file.as_bytes()).map(|entry| entry.map(|e| e.n)).collect();
    assert!(matches!(read[..], [Ok(1), Ok(2), Ok(3), Err(_)]), "{read:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>) {
        let _ = verify_reader(&bytes[..], None);
        let _ = open(&Disk::with(&bytes));
    }

    /// Damage within a file that is nearly right: opening it either refuses and changes nothing, or leaves a good
    /// file that still begins with what was good.
    #[test]
    fn damage_is_refused_or_mended(at: prop::sample::Index, remove in 0usize..40, insert: Vec<u8>) {
        let mut file = sample();
        let at = at.index(file.len());
        file.splice(at..(at + remove).min(file.len()), insert);
        let disk = Disk::with(&file);
        match open(&disk) {
            Ok((audit, _)) => {
                let verified = verify_reader(&disk.bytes()[..], Some(audit.head().into()));
                prop_assert!(verified.is_ok_and(|v| v.open.is_empty()));
                let kept = file.len() - disk.aside().len();
                prop_assert_eq!(&disk.bytes()[..kept], &file[..kept]);
            }
            Err(_) => prop_assert_eq!(disk.bytes(), file),
        }
    }
}
