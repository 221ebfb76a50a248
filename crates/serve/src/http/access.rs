//! Who asks: keys, clients, and pages of other origins.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::{Api, Pages, Shared};
use crate::error::Refusal;

/// Who asks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Client {
    /// The name of a key, or the address.
    pub(crate) name: String,
    /// Whether it has a key, and so sees its own jobs only.
    is_known: bool,
}

impl Client {
    /// Whose jobs it sees; everybody's where there are no keys.
    pub(crate) fn sees(&self) -> Option<&str> {
        self.is_known.then_some(&self.name)
    }
}

/// Lets those pass who have a key, where there are keys.
pub(crate) async fn guard(State(api): Shared, mut request: Request, next: Next) -> Response {
    match client(&api, &request) {
        Ok(client) => {
            request.extensions_mut().insert(client);
            next.run(request).await
        }
        Err(refusal) => refusal.into_response(),
    }
}

fn client(api: &Arc<Api>, request: &Request) -> Result<Client, Refusal> {
    let Some(keys) = &api.keys else {
        let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
        let name = peer.map_or("unknown".to_owned(), |peer| peer.0.ip().to_string());
        return Ok(Client { name, is_known: false });
    };
    let given = request.headers().get(header::AUTHORIZATION).and_then(|own| own.to_str().ok());
    let Some(key) = given.and_then(|own| own.strip_prefix("Bearer ")) else {
        return Err(Refusal::key("give a key, as `Authorization: Bearer KEY`"));
    };
    match keys.client(key.trim()) {
        Some(name) => Ok(Client { name: name.to_owned(), is_known: true }),
        None => Err(Refusal::key("this is no key of the server")),
    }
}

/// Refuses what a page of another origin makes a browser send, unless that origin is welcome. A name that somebody else
/// has let lead to this machine is not its name.
pub(crate) async fn origins(
    State(pages): State<Arc<Pages>>,
    request: Request,
    next: Next,
) -> Response {
    let host = text(request.headers(), header::HOST).to_owned();
    let origin = request.headers().get(header::ORIGIN).and_then(|own| own.to_str().ok());
    let welcome =
        origin.filter(|own| pages.origins.iter().any(|known| known == own)).map(str::to_owned);
    let is_foreign =
        origin.is_some_and(|own| own.split_once("://").is_none_or(|(_, own)| own != host));
    if welcome.is_none() && is_foreign {
        let message =
            "a page of another origin may not ask; start the server with --allow-origin for it";
        return Refusal::forbidden(message).into_response();
    }
    if !pages.has_keys && !is_literal(&host) {
        let message =
            "without keys the server answers to localhost and to addresses only; give it --keys";
        return Refusal::forbidden(message).into_response();
    }
    let Some(origin) = welcome.and_then(|own| HeaderValue::from_str(&own).ok()) else {
        return next.run(request).await;
    };
    let mut response = match request.method() == Method::OPTIONS {
        true => StatusCode::NO_CONTENT.into_response(),
        false => next.run(request).await,
    };
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::VARY, HeaderValue::from_static("origin"));
    let methods = HeaderValue::from_static("GET, POST, DELETE");
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
    let allowed = HeaderValue::from_static("authorization, content-type, range");
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, allowed);
    response
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> &str {
    headers.get(name).and_then(|own| own.to_str().ok()).unwrap_or_default()
}

/// Lets errors that the framework words by itself have the form of all others.
pub(crate) async fn shape(request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    let (status, kind) = (response.status(), text(response.headers(), header::CONTENT_TYPE));
    if status.as_u16() < 400 || kind.starts_with("application/json") {
        return response;
    }
    let own = Refusal::worded(status).into_response();
    let (mut parts, _) = response.into_parts();
    for name in [header::CONTENT_TYPE, header::CONTENT_LENGTH, header::TRANSFER_ENCODING] {
        parts.headers.remove(name);
    }
    let (shaped, body) = own.into_parts();
    parts.headers.extend(shaped.headers);
    Response::from_parts(parts, body)
}

/// Whether a host is an address, or this machine.
fn is_literal(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name == "localhost" || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::is_literal;

    #[test]
    fn names_of_others_are_not_ours() {
        for own in ["localhost", "localhost:8000", "127.0.0.1:8000", "[::1]:8000", "10.0.0.7"] {
            assert!(is_literal(own), "{own}");
        }
        for other in [
            "",
            "evil.example",
            "evil.example:8000",
            "localhost.evil.example",
            "127.0.0.1.evil.example:80",
        ] {
            assert!(!is_literal(other), "{other}");
        }
    }
}
