//! `GET /v1/providers` with vendors that can be asked (contract 1.7).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use async_trait::async_trait;
use countersign_driver::Driver;
use countersign_driver::provider::{
    Discovery, ListedModels, Provider, ProviderError, Turn, TurnRequest, TurnSink,
};
use countersign_host::{Options, Service, Token};
use countersign_protocol::code::Code;
use countersign_protocol::provider_info::{AuthMode, Capabilities, HealthStatus, ProviderInfo};
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::support::{ANN, Ask, BOB, CARL, Peer};

const REMEMBERED: &str = "/v1/providers";
const REFRESHED: &str = "/v1/providers?refresh=true";

#[derive(Clone)]
enum Says {
    Ready(usize),
    NoKey,
    Nothing,
    Panics,
    NeverAnswers,
}

struct Vendor {
    info: ProviderInfo,
    says: Says,
    asked: AtomicUsize,
    answered: AtomicUsize,
}

impl Vendor {
    fn new(id: &str, models: Option<Vec<&str>>, says: Says) -> Arc<Self> {
        let models = models.map(|models| models.iter().map(|model| model.parse_model()).collect());
        let info = ProviderInfo {
            id: id.to_owned().try_into_id(),
            name: id.into(),
            vendor: "test".into(),
            auth_mode: AuthMode::ApiKey,
            capabilities: Capabilities::default(),
            models,
            health: None,
            model_catalog: None,
        };
        Arc::new(Self { info, says, asked: AtomicUsize::new(0), answered: AtomicUsize::new(0) })
    }

    fn asked(&self) -> usize {
        self.asked.load(SeqCst)
    }
}

#[async_trait]
impl Provider for Vendor {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    async fn turn(&self, _: TurnRequest<'_>, _: &dyn TurnSink) -> Result<Turn, ProviderError> {
        panic!("discovery asks for no turn");
    }

    async fn discover(&self) -> Option<Discovery> {
        self.asked.fetch_add(1, SeqCst);
        sleep(Duration::from_millis(100)).await;
        let found = match self.says {
            Says::Ready(count) => {
                let models = (0..count).map(|at| format!("m{at}").parse_model()).collect();
                Discovery {
                    status: HealthStatus::Ready,
                    code: "READY".to_owned().into(),
                    message: "The provider's server answers.".into(),
                    models: Some(ListedModels { models, complete: true }),
                }
            }
            Says::NoKey => Discovery {
                status: HealthStatus::Unauthenticated,
                code: Code::PROVIDER_AUTH,
                message: "It does not accept the key.".into(),
                models: None,
            },
            Says::Nothing => return None,
            Says::Panics => panic!("as a provider may"),
            Says::NeverAnswers => std::future::pending().await,
        };
        self.answered.fetch_add(1, SeqCst);
        Some(found)
    }
}

/// Ids from text.
trait Named {
    fn parse_model(&self) -> countersign_approval_core::ids::ModelId;
    fn try_into_id(&self) -> countersign_approval_core::ids::ProviderId;
}

impl<T: AsRef<str>> Named for T {
    fn parse_model(&self) -> countersign_approval_core::ids::ModelId {
        countersign_approval_core::ids::ModelId::parse(self.as_ref()).unwrap()
    }

    fn try_into_id(&self) -> countersign_approval_core::ids::ProviderId {
        countersign_approval_core::ids::ProviderId::parse(self.as_ref()).unwrap()
    }
}

/// Ann may use all of them, Bob the first, Carl none.
fn host(vendors: &[Arc<Vendor>]) -> Service {
    let mut builder = Driver::builder();
    for vendor in vendors {
        builder = builder.provider(Arc::clone(vendor) as _);
    }
    let ids: Vec<String> = vendors.iter().map(|vendor| vendor.info.id.to_string()).collect();
    let token = |token: &str, subject: &str, providers: &[String]| Token {
        token: SecretString::from(token),
        subject: subject.into(),
        providers: providers.to_vec(),
        tools: Vec::new(),
        approve_tools: Vec::new(),
        application_tools: Vec::new(),
    };
    let tokens = vec![token(ANN, "ann", &ids), token(BOB, "bob", &ids[..1]), token(CARL, "carl", &[])];
    Service::new(builder.build().unwrap(), &Options { tokens, ..Options::default() }).unwrap()
}

fn connect(service: &Service) -> Peer<tokio::io::DuplexStream> {
    let (near, far) = tokio::io::duplex(1 << 20);
    let service = service.clone();
    tokio::spawn(async move { service.serve_connection(far).await });
    Peer::new(near)
}

async fn get(service: &Service, path: &str, token: &str) -> Vec<Value> {
    let answer = connect(service).ask(&Ask::get(path).token(token)).await;
    assert_eq!(answer.head.status, 200);
    answer.json()["providers"].as_array().unwrap().clone()
}

// 1.7: health and catalog in their exact shapes, for every kind of answer; a list of more than 1,000 is cut.
#[tokio::test(start_paused = true)]
async fn what_vendors_say_is_shown_in_the_contracts_shapes() {
    let vendors = [
        Vendor::new("ready", Some(vec!["m0"]), Says::Ready(2)),
        Vendor::new("many", None, Says::Ready(1_001)),
        Vendor::new("most", None, Says::Ready(1_000)),
        Vendor::new("unauthenticated", Some(vec!["a", "b"]), Says::NoKey),
        Vendor::new("unsupported", Some(vec!["a"]), Says::Nothing),
        Vendor::new("any", None, Says::Nothing),
        Vendor::new("panics", Some(vec!["a"]), Says::Panics),
        Vendor::new("silent", Some(vec!["a"]), Says::NeverAnswers),
    ];
    let service = host(&vendors);
    let begun = Instant::now();
    let mut told = get(&service, REMEMBERED, ANN).await;
    let waited = begun.elapsed();
    assert!((5_000..5_200).contains(&waited.as_millis()), "all at once, and 5 s at most: {waited:?}");
    for provider in &mut told {
        let checked_at = provider["health"].as_object_mut().unwrap().remove("checkedAt").unwrap();
        assert!(checked_at.as_str().unwrap().ends_with('Z'), "{checked_at}");
    }
    let many: Vec<String> = (0..1_000).map(|at| format!("m{at}")).collect();
    let expected = [
        (
            json!({"status": "ready", "code": "READY", "message": "The provider's server answers."}),
            json!({"source": "provider", "models": ["m0", "m1"], "complete": true}),
        ),
        (
            json!({"status": "ready", "code": "READY", "message": "The provider's server answers."}),
            json!({"source": "provider", "models": many, "complete": false}),
        ),
        (
            json!({"status": "ready", "code": "READY", "message": "The provider's server answers."}),
            json!({"source": "provider", "models": many, "complete": true}),
        ),
        (
            json!({"status": "unauthenticated", "code": "PROVIDER_AUTH", "message": "It does not accept the key."}),
            json!({"source": "configured", "models": ["a", "b"], "complete": false}),
        ),
        (
            json!({"status": "unsupported", "code": "DISCOVERY_UNSUPPORTED", "message": "This provider cannot be probed."}),
            json!({"source": "configured", "models": ["a"], "complete": false}),
        ),
        (
            json!({"status": "unsupported", "code": "DISCOVERY_UNSUPPORTED", "message": "This provider cannot be probed."}),
            json!({"source": "unavailable", "models": [], "complete": false}),
        ),
        (
            json!({"status": "unavailable", "code": "INTERNAL_ERROR", "message": "The provider cannot say how it is."}),
            json!({"source": "configured", "models": ["a"], "complete": false}),
        ),
        (
            json!({"status": "unavailable", "code": "TIMEOUT", "message": "The provider's server gave no answer within 5 seconds."}),
            json!({"source": "configured", "models": ["a"], "complete": false}),
        ),
    ];
    assert_eq!(told.len(), expected.len());
    for (provider, (health, catalog)) in told.iter().zip(expected) {
        assert_eq!(provider["health"], health, "{}", provider["id"]);
        assert_eq!(provider["modelCatalog"], catalog, "{}", provider["id"]);
    }
}

// 1.7: an answer lives 30 s; with refresh=true a new one is asked for, but not within a second of the last.
#[tokio::test(start_paused = true)]
async fn answers_are_remembered_and_refreshed() {
    let vendor = Vendor::new("v", None, Says::Ready(1));
    let service = host(&[Arc::clone(&vendor)]);
    let at = |path, token| get(&service, path, token);
    let checked = |told: Vec<Value>| told[0]["health"]["checkedAt"].clone();
    let first = checked(at(REMEMBERED, ANN).await);
    assert_eq!(checked(at(REMEMBERED, BOB).await), first, "for whoever asks");
    sleep(Duration::from_millis(29_900)).await;
    at(REMEMBERED, ANN).await;
    assert_eq!(vendor.asked(), 1, "29.9 s old");
    sleep(Duration::from_millis(100)).await;
    at(REMEMBERED, ANN).await;
    assert_eq!(vendor.asked(), 2, "30 s old");
    for _ in 0..10 {
        at(REFRESHED, ANN).await;
    }
    assert_eq!(vendor.asked(), 2, "just asked");
    sleep(Duration::from_millis(999)).await;
    at(REFRESHED, ANN).await;
    assert_eq!(vendor.asked(), 2, "0.999 s old");
    sleep(Duration::from_millis(1)).await;
    at(REFRESHED, BOB).await;
    assert_eq!(vendor.asked(), 3, "1 s old");
}

// One question at a time, whoever asks and however; and asking and hanging up is no way around the bounds.
#[tokio::test(start_paused = true)]
async fn a_hundred_who_ask_at_once_are_one_question() {
    let vendor = Vendor::new("v", None, Says::Ready(1));
    let service = host(&[Arc::clone(&vendor)]);
    let mut asking = tokio::task::JoinSet::new();
    for at in 0..100 {
        let service = service.clone();
        asking.spawn(async move { get(&service, [REMEMBERED, REFRESHED][at % 2], ANN).await });
    }
    asking.join_all().await;
    assert_eq!(vendor.asked(), 1);
    for _ in 0..50 {
        let mut peer = connect(&service);
        peer.send(&Ask::get(REFRESHED).token(ANN).bytes()).await;
        sleep(Duration::from_millis(40)).await;
        drop(peer);
    }
    // Two seconds went by.
    assert!(vendor.asked() <= 3, "{}", vendor.asked());
    sleep(Duration::from_secs(1)).await;
    assert_eq!(vendor.asked(), vendor.answered.load(SeqCst), "a question goes on without the one who asked");
}

// Law 4: nobody has a vendor asked that he may not use.
#[tokio::test(start_paused = true)]
async fn only_granted_vendors_are_asked() {
    let vendors = [Vendor::new("a", None, Says::Ready(1)), Vendor::new("b", None, Says::Ready(1))];
    let service = host(&vendors);
    assert_eq!(get(&service, REFRESHED, CARL).await, Vec::<Value>::new());
    let told = get(&service, REFRESHED, BOB).await;
    assert_eq!(told.iter().map(|provider| &provider["id"]).collect::<Vec<_>>(), ["a"]);
    assert_eq!([vendors[0].asked(), vendors[1].asked()], [1, 0]);
    let unauthorized = connect(&service).ask(&Ask::get(REFRESHED)).await;
    assert_eq!(unauthorized.outcome(), (401, "UNAUTHORIZED".into()));
    assert_eq!([vendors[0].asked(), vendors[1].asked()], [1, 0]);
}

// Law 5: closing waits for no vendor longer than for a stream.
#[tokio::test(start_paused = true)]
async fn closing_ends_a_question() {
    let vendor = Vendor::new("v", None, Says::NeverAnswers);
    let service = host(&[Arc::clone(&vendor)]);
    let mut peer = connect(&service);
    peer.send(&Ask::get(REMEMBERED).token(ANN).bytes()).await;
    sleep(Duration::from_millis(200)).await;
    let begun = Instant::now();
    service.close().await;
    assert!(begun.elapsed() <= Duration::from_millis(2_100), "{:?}", begun.elapsed());
}
