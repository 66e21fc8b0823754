//! What a host says about itself and its providers (contract 1.6, 1.7).

use serde_json::json;

use crate::support::{ANN, Ask, CARL, Fixture};

#[tokio::test]
async fn health_needs_nothing() {
    let answer = Fixture::new().ask(&Ask::get("/health")).await;
    assert_eq!(answer.json(), json!({"status": "ok", "protocol": "agenticdriver.v1"}));
}

// Contract 1.6 and 4.11, row 22: `interactive-approvals` only where it is switched on, and nothing that is not true.
#[tokio::test]
async fn features_are_those_that_this_host_has() {
    let common = [
        "event-stream",
        "cancel-on-disconnect",
        "optional-idle-timeout",
        "required-capabilities",
        "optional-events",
        "provider-discovery",
    ];
    let expect = |features: Vec<&str>| json!({"protocol": "agenticdriver", "version": "1.0", "supportedVersions": ["1.0"], "features": features});
    let ask = Ask::get("/v1/protocol").token(ANN);
    let on = [&["json-results", "interactive-approvals"][..], &common].concat();
    assert_eq!(Fixture::new().ask(&ask).await.json(), expect(on));
    let off = [&["json-results"][..], &common].concat();
    assert_eq!(Fixture::without_approvals().ask(&ask).await.json(), expect(off));
}

#[tokio::test]
async fn providers_are_those_that_the_token_names() {
    let fixture = Fixture::new();
    for path in ["/v1/providers", "/v1/providers?refresh=true"] {
        let mut body = fixture.ask(&Ask::get(path).token(ANN)).await.json();
        for provider in body["providers"].as_array_mut().unwrap() {
            let checked_at = provider["health"]["checkedAt"].take();
            assert!(checked_at.as_str().unwrap().ends_with('Z'));
        }
        let health = json!({
            "status": "unsupported", "code": "DISCOVERY_UNSUPPORTED", "message": "This provider cannot be probed.",
            "checkedAt": null,
        });
        assert_eq!(
            body,
            json!({"providers": [
                {
                    "id": "mock", "name": "mock", "vendor": "scripted", "authMode": "none",
                    "capabilities": {"tools": true, "textStreaming": true}, "models": ["demo"], "health": health,
                    "modelCatalog": {"source": "configured", "models": ["demo"], "complete": false},
                },
                {
                    "id": "spare", "name": "Spare", "vendor": "scripted", "authMode": "none",
                    "capabilities": {"tools": false, "textStreaming": true}, "models": ["demo", "other"],
                    "health": health,
                    "modelCatalog": {"source": "configured", "models": ["demo", "other"], "complete": false},
                },
            ]})
        );
        let none = fixture.ask(&Ask::get(path).token(CARL)).await;
        assert_eq!((none.head.status, none.json()), (200, json!({"providers": []})));
    }
}
