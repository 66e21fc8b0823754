//! Where a host may be (contract 10.1).

use url::{Host, Url};

use crate::error::Misuse;

/// A checked base URL whose path ends in `/`.
#[derive(Debug, Clone)]
pub(crate) struct BaseUrl(Url);

impl BaseUrl {
    /// HTTPS, or HTTP that does not leave this machine; nothing secret or changing in the URL. A path prefix is kept.
    pub(crate) fn parse(text: &str) -> Result<Self, Misuse> {
        let mut url = Url::parse(text).map_err(|_| Misuse::BaseUrl("it is not a URL"))?;
        match url.scheme() {
            "https" => {}
            "http" if is_loopback(&url) => {}
            "http" => {
                return Err(Misuse::BaseUrl("plain HTTP is allowed to localhost, 127.0.0.1 and ::1 only"));
            }
            _ => return Err(Misuse::BaseUrl("it must be https, or http to this machine")),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Misuse::BaseUrl("it must not contain user information"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(Misuse::BaseUrl("it must not contain a query or a fragment"));
        }
        if !url.path().ends_with('/') {
            url.set_path(&format!("{}/", url.path()));
        }
        Ok(Self(url))
    }

    pub(crate) fn is_https(&self) -> bool {
        self.0.scheme() == "https"
    }

    /// The URL of a path of the protocol, which begins with `/` and may have a query.
    pub(crate) fn join(&self, path: &str) -> String {
        format!("{}{}", self.0, path.trim_start_matches('/'))
    }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address == std::net::Ipv4Addr::LOCALHOST,
        Some(Host::Ipv6(address)) => address == std::net::Ipv6Addr::LOCALHOST,
        None => false,
    }
}
