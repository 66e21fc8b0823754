//! Errors from which an agent can learn, and the caller's own mistakes (scenarios W44, W48).

use countersign_sandbox_js::{BadInput, Ending, Error, Function, Json, Output, RunOptions};
use serde::Deserialize;

use super::harness::{SANDBOX, failed, rows, run, summary};

fn named(name: &str) -> Function {
    Function::new(name, |_, _| async { Ok(Output::null()) })
}

// W48: an unknown function lists the nearest names.
#[tokio::test]
async fn unknown_functions() {
    let functions = || ["delete_file", "read_file", "send_mail"].map(named).to_vec();
    for (code, name, nearest, place) in [
        ("await deleteFile({})", "deleteFile", "delete_file", (1, 7)),
        ("await tools.deleteFile({})", "deleteFile", "delete_file", (1, 7)),
        ("\nawait mcp.files.readFile({})", "readFile", "read_file", (2, 7)),
        ("sendmail()", "sendmail", "send_mail", (1, 1)),
    ] {
        let failed = failed(SANDBOX.run(RunOptions::new(code, functions())).await.unwrap());
        let position = failed.position.unwrap();
        assert_eq!((position.line, position.column), place, "{code}");
        let Ending::UnknownFunction { name: got, nearest: found } = &failed.ending else {
            panic!("{code}: {failed}");
        };
        assert_eq!((got.as_str(), found.first().map(String::as_str)), (name, Some(nearest)), "{code}");
        assert!(failed.message.contains(&format!("did you mean {nearest}")), "{failed}");
    }
    // A name that is not called is an ordinary error, and so is one that the program threw itself.
    for code in ["missing + 1", "throw new ReferenceError('deleteFile is not defined')"] {
        let outcome = SANDBOX.run(RunOptions::new(code, functions())).await.unwrap();
        assert_eq!(failed(outcome).ending.kind(), "Thrown", "{code}");
    }
}

// R2.5: judged before the decision, on the text that would be shown; told with path, expected and got.
#[tokio::test]
async fn bad_inputs() {
    #[derive(Deserialize)]
    struct Path {
        path: String,
    }
    let del = named("del").requires_approval().check(|input: &Json| {
        let fits = input.decode::<Path>().is_ok_and(|input| input.path.starts_with('/'));
        let bad = || BadInput {
            path: "/path".to_owned(),
            expected: "an absolute path".to_owned(),
            got: input.text().to_owned(),
        };
        if fits { Ok(()) } else { Err(bad()) }
    });
    let code = "try { await del({ path: 'a' }) } catch (e) { return [e.name, e.message] }";
    let outcome = SANDBOX.run(RunOptions::new(code, vec![del.clone()])).await.unwrap();
    assert_eq!(
        summary(&outcome),
        r#"completed ["TypeError","the input of del does not fit: at /path: expected an absolute path, got {\"path\":\"a\"}"]"#
    );
    assert!(outcome.report().is_empty());
    let outcome = SANDBOX.run(RunOptions::new("await del({ path: '/a' })", vec![del])).await.unwrap();
    assert_eq!(rows(&outcome), ["1 del rejected"]);
}

// W44: three one-line programs, three precise outcomes.
#[tokio::test]
async fn three_precise_outcomes() {
    for (code, expected) in [
        ("for (;;) {}", "LimitExceeded: the run used more than 20000 polls or 5s of computing"),
        (
            "return [read({})]",
            "ResultRefused: the program's result at /0 is a promise; did you forget `await`?",
        ),
        ("await new Promise(() => {})", "Stalled: the program waits for a promise that nothing will settle"),
    ] {
        assert_eq!(summary(&run(code).await), expected, "{code}");
    }
}

#[tokio::test]
async fn mistakes_of_the_caller() {
    for (functions, expected) in [
        (
            vec![named("a-b")],
            r#"the function name "a-b" must be an identifier of 1 to 64 ASCII letters, digits, _ and $"#,
        ),
        (
            vec![named("")],
            r#"the function name "" must be an identifier of 1 to 64 ASCII letters, digits, _ and $"#,
        ),
        (vec![named("delete")], r#"the function name "delete" is reserved by the language"#),
        (vec![named("Date")], r#"the function name "Date" is a global that programs rely on"#),
        (vec![named("a"), named("a")], r#"two functions are called "a""#),
        (
            vec![named("a").input_schema("{")],
            "the input schema of a is not JSON: not JSON: expected a key at byte 1 at the top; send one JSON value",
        ),
    ] {
        let refused: Result<_, Error> = SANDBOX.run(RunOptions::new("return 1", functions)).await;
        assert_eq!(refused.unwrap_err().to_string(), expected);
    }
}
