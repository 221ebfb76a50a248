//! `/v1/models` and `/v1/loras`.

use crate::json::Json;
use axum::extract::{Path, State};
use axum::response::IntoResponse;
use serde_json::{Value, json};

use super::{Api, Shared, blocking};
use crate::Model;
use crate::error::{Answer, Refusal};
use crate::jobs::now;

fn shown(api: &Api, model: &Model) -> Value {
    let created = now() - api.started.elapsed().as_secs() as i64;
    json!({ "id": model.id(), "object": "model", "created": created, "owned_by": "moviola" })
}

/// The models that are served.
#[utoipa::path(get, path = "/v1/models", tag = "models", responses((status = 200, description = "All of them")))]
pub(crate) async fn list(State(api): Shared) -> Answer {
    let data: Vec<Value> = api.engine.models.0.iter().map(|model| shown(&api, model)).collect();
    Ok(Json(json!({ "object": "list", "data": data })).into_response())
}

/// One of the models.
#[utoipa::path(get, path = "/v1/models/{id}", tag = "models", responses((status = 200, description = "The model"), (status = 404, description = "There is none of this name")))]
pub(crate) async fn retrieve(State(api): Shared, Path(id): Path<String>) -> Answer {
    let model = api.engine.models.find(Some(&id));
    let model = model.map_err(|refusal| Refusal::not_found(refusal.message()))?;
    Ok(Json(shown(&api, model)).into_response())
}

/// The LoRAs that requests can name.
#[utoipa::path(get, path = "/v1/loras", tag = "models", responses((status = 200, description = "All of them")))]
pub(crate) async fn loras(State(api): Shared) -> Answer {
    blocking(move || {
        let known = api.engine.loras.list();
        let data: Vec<Value> =
            known.keys().map(|name| json!({ "id": name, "object": "lora" })).collect();
        Ok(Json(json!({ "object": "list", "data": data })).into_response())
    })
    .await
}
