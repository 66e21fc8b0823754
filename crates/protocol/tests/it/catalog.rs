//! The host's answers about itself: contract 1.6, 1.7 and the rows `catalog` and `protocol` of 10.4.

use countersign_protocol::decode;
use countersign_protocol::provider_info::{
    AuthMode, Capabilities, CatalogSource, Health, HealthStatus, ModelCatalog, ProviderInfo, ProviderList,
};
use countersign_protocol::version::{ProtocolInfo, feature};
use expect_test::expect;

use crate::support::{at, model, provider};

#[test]
fn protocol_info() {
    let info = ProtocolInfo::new(vec![feature::EVENT_STREAM.to_owned(), feature::APPROVAL_DIGEST.to_owned()]);
    let text = serde_json::to_string(&info).unwrap();
    expect![[r#"{"protocol":"agenticdriver","version":"1.0","supportedVersions":["1.0"],"features":["event-stream","approval-digest"]}"#]]
        .assert_eq(&text);
    assert_eq!(decode::<ProtocolInfo>(&text).unwrap(), info);
    // bad-protocol
    assert!(decode::<ProtocolInfo>(r#"{"protocol":"agenticdriver","version":"1.0"}"#).is_err());
}

#[test]
fn provider_shapes() {
    let mut info = ProviderInfo {
        id: provider(),
        name: "Mock".to_owned(),
        vendor: "mock".to_owned(),
        auth_mode: AuthMode::ApiKey,
        capabilities: Capabilities {
            tools: true,
            text_streaming: false,
            others: [("safeRetries".to_owned(), true)].into(),
        },
        models: None,
        health: None,
        model_catalog: None,
    };
    expect![[r#"{"id":"mock","name":"Mock","vendor":"mock","authMode":"api-key","capabilities":{"tools":true,"textStreaming":false,"safeRetries":true}}"#]]
        .assert_eq(&serde_json::to_string(&info).unwrap());
    info.models = Some(vec![model()]);
    info.health = Some(Health {
        status: HealthStatus::Unsupported,
        code: "DISCOVERY_UNSUPPORTED".to_owned(),
        message: "There is no probe.".to_owned(),
        checked_at: at(0),
    });
    info.model_catalog = Some(ModelCatalog {
        source: CatalogSource::Configured,
        models: vec!["demo".to_owned()],
        complete: false,
    });
    let text = serde_json::to_string(&info).unwrap();
    expect![[r#"{"id":"mock","name":"Mock","vendor":"mock","authMode":"api-key","capabilities":{"tools":true,"textStreaming":false,"safeRetries":true},"models":["demo"],"health":{"status":"unsupported","code":"DISCOVERY_UNSUPPORTED","message":"There is no probe.","checkedAt":"2026-01-02T03:04:05.678Z"},"modelCatalog":{"source":"configured","models":["demo"],"complete":false}}"#]]
        .assert_eq(&text);
    assert_eq!(decode::<ProviderInfo>(&text).unwrap(), info);
}

/// A capability that is missing or false is the same as one that nobody knows (contract 2.1, step 9).
#[test]
fn capabilities_are_true_or_nothing() {
    let can =
        Capabilities { tools: true, text_streaming: false, others: [("images".to_owned(), false)].into() };
    assert!(can.has("tools"));
    assert!(!can.has("textStreaming") && !can.has("images") && !can.has("telepathy"));
}

/// The rows of 10.4, each as one change to the provider that `discovery-metadata` accepts.
#[test]
fn catalogs() {
    const GOOD: &str = r#"{"id":"mock","name":"Mock","vendor":"mock","authMode":"none","capabilities":{"tools":true,"textStreaming":true},"health":{"status":"unknown","code":"FUTURE_DISCOVERY_CODE","message":"m","checkedAt":"2026-09-20T12:00:00.000Z","futureField":true},"modelCatalog":{"source":"provider","models":["demo"],"complete":true,"futureField":true}}"#;
    let read = |provider: &str| decode::<ProviderList>(&format!(r#"{{"providers":[{provider}]}}"#));
    assert_eq!(read(GOOD).unwrap().providers.len(), 1);
    assert!(decode::<ProviderList>(r#"{"providers":[]}"#).is_ok());
    assert!(decode::<ProviderList>("{bad").is_err(), "malformed-catalog-json");
    let many = format!(r#""models":[{}"demo"]"#, r#""m","#.repeat(1000));
    for (row, from, to) in [
        ("bad-catalog", GOOD, r#"{"id":"mock"}"#),
        ("invalid-auth-mode-type", r#""none""#, "{}"),
        ("unknown auth mode", r#""none""#, r#""telepathy""#),
        ("invalid-health", r#""health":{"#, r#""health":null,"x":{"#),
        ("unknown status", r#""unknown""#, r#""fine""#),
        ("empty health code", "FUTURE_DISCOVERY_CODE", ""),
        ("invalid-health-time", "2026-09-20T12:00:00.000Z", "yesterday"),
        ("invalid-catalog-model", r#"["demo"]"#, "[1]"),
        ("invalid-catalog-completeness", r#""complete":true"#, r#""complete":null"#),
        ("too many models", r#""models":["demo"]"#, many.as_str()),
        ("null models", r#""health":{"#, r#""models":null,"health":{"#),
        ("capability that is no boolean", r#""tools":true"#, r#""tools":true,"images":"yes""#),
        ("capability that is null", r#""tools":true"#, r#""tools":true,"images":null"#),
        ("missing capability", r#""tools":true,"#, ""),
    ] {
        let changed = GOOD.replace(from, to);
        assert_ne!(changed, GOOD, "{row} changes nothing");
        assert!(read(&changed).is_err(), "{row}");
    }
    let thousand = format!(r#""models":[{}"demo"]"#, r#""m","#.repeat(999));
    assert!(read(&GOOD.replace(r#""models":["demo"]"#, &thousand)).is_ok());
}
