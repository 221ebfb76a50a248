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
    /// Whether it asks from this machine.
    is_here: bool,
}

impl Client {
    /// Whose jobs it sees; everybody's where there are no keys.
    pub(crate) fn sees(&self) -> Option<&str> {
        self.is_known.then_some(&self.name)
    }

    /// Whether it may be told where files are: it has this machine, and nobody is asked for a key.
    pub(crate) fn has_machine(&self) -> bool {
        self.is_here && !self.is_known
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
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let address = peer.map(|peer| peer.0.ip().to_canonical());
    let is_here = address.is_some_and(|own| own.is_loopback());
    let Some(keys) = &api.keys else {
        let name = address.map_or("unknown".to_owned(), |own| own.to_string());
        return Ok(Client { name, is_known: false, is_here });
    };
    let given = request.headers().get(header::AUTHORIZATION).and_then(|own| own.to_str().ok());
    let Some(key) = given.and_then(bearer) else {
        return Err(Refusal::key("give a key, as `Authorization: Bearer KEY`"));
    };
    match keys.client(key) {
        Some(name) => Ok(Client { name: name.to_owned(), is_known: true, is_here }),
        None => Err(Refusal::key("this is no key of the server")),
    }
}

/// The key of a header; the name of a scheme has no case.
fn bearer(header: &str) -> Option<&str> {
    let (scheme, key) = header.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
}

/// Refuses what a page of another origin makes a browser send, unless that origin is welcome. A name that somebody else
/// has let lead to this machine is not its name.
pub(crate) async fn origins(
    State(pages): State<Arc<Pages>>,
    request: Request,
    next: Next,
) -> Response {
    let host = text(request.headers(), header::HOST).to_ascii_lowercase();
    let origin = request.headers().get(header::ORIGIN).and_then(|own| own.to_str().ok());
    let welcome =
        origin.filter(|own| pages.origins.iter().any(|known| known == own)).map(str::to_owned);
    let is_own =
        |own: &str| own.split_once("://").is_some_and(|(_, own)| own.eq_ignore_ascii_case(&host));
    let is_foreign = origin.is_some_and(|own| !is_own(own));
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
    let allowed = allowed(text(request.headers(), header::ACCESS_CONTROL_REQUEST_HEADERS));
    let mut response = match request.method() == Method::OPTIONS {
        true => StatusCode::NO_CONTENT.into_response(),
        false => next.run(request).await,
    };
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::VARY, HeaderValue::from_static("origin"));
    let methods = HeaderValue::from_static("GET, POST, DELETE");
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, allowed);
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
    response
}

/// What a page of a welcome origin may send, and what it may read of an answer.
const ALLOWED: &str = "authorization, content-type, range";
const EXPOSED: &str =
    "accept-ranges, content-length, content-range, openai-poll-after-ms, retry-after";

/// Those headers of a page that are allowed: ours, and what OpenAI's library says of itself.
fn allowed(asked: &str) -> HeaderValue {
    let names = asked.split(',').map(|name| name.trim().to_ascii_lowercase());
    let is_of_library = |name: &String| {
        let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        is_name && (name.starts_with("x-stainless-") || name.starts_with("openai-"))
    };
    let all = names.filter(is_of_library).fold(ALLOWED.to_owned(), |all, name| all + ", " + &name);
    HeaderValue::from_str(&all).unwrap_or(HeaderValue::from_static(ALLOWED))
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
    use super::{Client, allowed, bearer, is_literal};

    #[test]
    fn places_are_for_whoever_has_the_machine() {
        for (is_known, is_here, want) in
            [(false, true, true), (false, false, false), (true, true, false), (true, false, false)]
        {
            let client = Client { name: "anna".to_owned(), is_known, is_here };
            assert_eq!(client.has_machine(), want, "{client:?}");
        }
    }

    #[test]
    fn schemes_have_no_case() {
        for header in ["Bearer abc", "bearer abc", "BEARER  abc "] {
            assert_eq!(bearer(header), Some("abc"), "{header}");
        }
        for header in ["abc", "Basic abc", "Bearerabc", ""] {
            assert_eq!(bearer(header), None, "{header}");
        }
    }

    #[test]
    fn pages_send_what_the_library_says_of_itself() {
        let own = allowed("X-Stainless-OS, x-stainless-arch, cookie, x-evil, OpenAI-Project");
        let own = own.to_str().expect("a text");
        assert!(own.ends_with(", x-stainless-os, x-stainless-arch, openai-project"), "{own}");
        assert!(!own.contains("cookie") && !own.contains("evil"), "{own}");
    }

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
