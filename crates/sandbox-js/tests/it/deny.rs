//! Mode `deny`, and `ApprovalRejected` in all modes alike (sandbox spec 10).

use countersign_sandbox_js::{Ending, Rejection};

use super::harness::{Log, SANDBOX, failed, options, rows, run, summary, value};

// Law 1: nothing marked runs by omission. The rejection is typed, has its place, and is in the report.
#[tokio::test]
async fn a_marked_call_is_rejected_without_running() {
    let log = Log::default();
    let outcome = SANDBOX.run(options("const a = 1;\n  await del({ path: '/a' });", &log)).await.unwrap();
    assert!(log.all().is_empty());
    assert_eq!(rows(&outcome), ["1 del rejected"]);
    let failed = failed(outcome);
    assert_eq!(
        failed.ending,
        Ending::ApprovalRejected {
            call_id: failed.report[0].call_id.clone(),
            seq: 1,
            function: "del".to_owned(),
            reason: Rejection::Denied,
        }
    );
    assert_eq!(
        failed.to_string(),
        r#"ApprovalRejected: call #1 to "del" was not approved (line 2, column 9)"#
    );
    assert_eq!(failed.report[0].position, failed.position);
}

#[tokio::test]
async fn the_error_is_an_ordinary_value_of_the_program() {
    let code = "
        try { await del({ p: 1 }) } catch (e) {
            return [e instanceof ApprovalRejected, e instanceof Error, e.name, e.message, JSON.parse(JSON.stringify(e)),
                Object.keys(e), String(e), typeof e.stack, Object.getPrototypeOf(e) === ApprovalRejected.prototype]
        }";
    let id = "00000000-0000-4000-8000-000000000001-1";
    let message = r#"call #1 to \"del\" was not approved"#;
    assert_eq!(
        value(code).await,
        format!(
            r#"[true,true,"ApprovalRejected","{message}",{{"fn":"del","seq":1,"callId":"{id}","reason":"denied"}},["fn","seq","callId","reason"],"ApprovalRejected: {message}","string",true]"#
        )
    );
}

// A rejected promise, never a synchronous throw, so that `.catch` works and the order is the same in all modes.
#[tokio::test]
async fn a_rejection_is_asynchronous() {
    let code = "
        const order = [];
        let p;
        try { p = del({}); order.push('returned') } catch { order.push('threw') }
        const q = p.catch(() => order.push('caught'));
        order.push('before');
        await q;
        return order";
    assert_eq!(value(code).await, r#"["returned","before","caught"]"#);
}

// The kind of an ending comes from us, not from what the program calls its errors.
#[tokio::test]
async fn a_look_alike_is_the_programs_own_error() {
    for (code, kind) in [
        ("throw Object.assign(new Error('x'), { name: 'ApprovalRejected', fn: 'del', seq: 1 })", "Thrown"),
        ("throw new ApprovalRejected('x')", "Thrown"),
        ("try { await del({}) } catch (e) { throw new Error('wrapped', { cause: e }) }", "Thrown"),
        ("try { await del({}) } catch (e) { throw Object.create(e) }", "Thrown"),
        (
            "try { await del({}) } catch (e) { Object.defineProperty(e, 'name', { value: 'Error' }); throw e }",
            "ApprovalRejected",
        ),
        ("throw { name: 'LimitExceeded' }", "Thrown"),
    ] {
        assert_eq!(failed(run(code).await).ending.kind(), kind, "{code}");
    }
}

#[tokio::test]
async fn causes_are_reported() {
    let code = "try { await del({}) } catch (e) { throw new Error('wrapped', { cause: e }) }";
    let Ending::Thrown { name, call_id, causes } = failed(run(code).await).ending else {
        panic!("not thrown")
    };
    assert_eq!((name.as_str(), call_id), ("Error", None));
    assert_eq!(causes, [r#"ApprovalRejected: call #1 to "del" was not approved"#]);
}

// A floating call counts: it is a row, and an unhandled rejection ends the run (sandbox spec 6).
#[tokio::test]
async fn an_unhandled_rejection_ends_the_run() {
    assert_eq!(
        summary(&run("del({}); return 1").await),
        r#"ApprovalRejected: call #1 to "del" was not approved (line 1, column 1)"#
    );
    assert_eq!(summary(&run("del({}).catch(() => {}); return 1").await), "completed 1");
    assert_eq!(
        summary(&run("Promise.reject(new Error('x')); return 1").await),
        "Thrown: Error: x (line 1, column 20)"
    );
    let handled_later = "const p = Promise.reject(1); await read({}); await p.catch(() => {}); return 2";
    assert_eq!(summary(&run(handled_later).await), "completed 2");
}

// Unmarked calls may overlap in `deny` (sandbox spec R6.1); the loop goes on after a caught rejection.
#[tokio::test]
async fn the_program_goes_on_after_a_caught_rejection() {
    let log = Log::default();
    let code = "
        const done = [];
        for (const id of [1, 2, 3]) {
            try { await del({ id }) } catch (e) { done.push((await read({ id: e.seq })).id) }
        }
        return done";
    let outcome = SANDBOX.run(options(code, &log)).await.unwrap();
    assert_eq!(summary(&outcome), "completed [1,3,5]");
    assert_eq!(log.all(), [r#"read {"id":1}"#, r#"read {"id":3}"#, r#"read {"id":5}"#]);
    assert_eq!(
        rows(&outcome),
        [
            "1 del rejected",
            "2 read executed",
            "3 del rejected",
            "4 read executed",
            "5 del rejected",
            "6 read executed"
        ]
    );
}
