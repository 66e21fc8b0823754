//! Listening on a socket (contract 6.3).

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use countersign_driver::Driver;
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;

use crate::error::StartError;
use crate::options::{Options, require_loopback};
use crate::service::Service;

/// How long to wait after the system refused to accept, as it does when file descriptors run out.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

/// Serves the driver over HTTP. When it returns, the host accepts connections.
///
/// # Errors
/// [`StartError`] naming the option at fault: `TLS_REQUIRED` for an address other than loopback, `AUTH_REQUIRED` for
/// an unusable token, `LISTEN_FAILED` if the address cannot be bound.
pub async fn serve(driver: Driver, options: Options) -> Result<Host, StartError> {
    if options.tls.is_none() {
        require_loopback("listen.host", &options.host)?;
    }
    let service = Service::new(driver, &options)?;
    let name = options.host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let failed = |source: io::Error| StartError::Listen {
        address: format!("{}:{}", options.host, options.port),
        source,
    };
    let listener = TcpListener::bind((name.as_str(), options.port)).await.map_err(failed)?;
    let local_addr = listener.local_addr().map_err(failed)?;
    let accepting = TaskTracker::new();
    accepting.spawn(accept(listener, service.clone()));
    accepting.close();
    let scheme = if options.tls.is_some() { "https" } else { "http" };
    Ok(Host { url: url(scheme, &name, local_addr), local_addr, service, accepting })
}

/// A host that listens. Dropping it ends it at once, without the grace of [`Host::close`].
#[derive(Debug)]
pub struct Host {
    url: String,
    local_addr: SocketAddr,
    service: Service,
    accepting: TaskTracker,
}

impl Host {
    /// The base URL with the port that was bound; IPv6 addresses are in brackets.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The address that was bound.
    pub const fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// The service behind the socket, for connections that are accepted elsewhere.
    pub const fn service(&self) -> &Service {
        &self.service
    }

    /// Ends the host as [`Service::close`] does, and gives the address back. Calling it again waits for the same end.
    pub async fn close(&self) {
        self.service.close().await;
        self.accepting.wait().await;
        // A connection may have been accepted while the one before it was the last.
        self.service.close().await;
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.service.shared.closing.cancel();
        self.service.shared.stopped.cancel();
    }
}

fn url(scheme: &str, name: &str, bound: SocketAddr) -> String {
    if name.contains(':') {
        format!("{scheme}://[{name}]:{}", bound.port())
    } else {
        format!("{scheme}://{name}:{}", bound.port())
    }
}

/// Accepts until the service has stopped; while it closes, newcomers are told so.
async fn accept(listener: TcpListener, service: Service) {
    loop {
        let accepted = tokio::select! {
            biased;
            () = service.shared.stopped.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                // An answer should not wait for the acknowledgement of the one before; if it must, it still arrives.
                let _ = stream.set_nodelay(true);
                let service = service.clone();
                tokio::spawn(async move { service.serve_connection(stream).await });
            }
            // Somebody who came and went.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                service.shared.seats.make_room();
                tokio::time::sleep(ACCEPT_BACKOFF).await;
            }
        }
    }
}
