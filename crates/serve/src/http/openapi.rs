//! `/openapi.json`: the API as a document.

use crate::json::Json;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use utoipa::{OpenApi, ToSchema};

use super::{events, files, images, metrics, models, video, videos};

/// What a clip can be asked for. Files are uploads of a form, or data URLs of a JSON body.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes a form that is read field by field")]
pub(crate) struct VideoForm {
    prompt: String,
    model: Option<String>,
    negative_prompt: Option<String>,
    /// How long; rounded to the nearest number of frames that the model makes.
    seconds: Option<String>,
    /// Width x height, as in `832x480`.
    size: Option<String>,
    width: Option<u32>,
    height: Option<u32>,
    num_frames: Option<u32>,
    fps: Option<f64>,
    /// From 0 on; -1 draws one.
    seed: Option<i64>,
    num_inference_steps: Option<u32>,
    guidance_scale: Option<f64>,
    guidance_scale_2: Option<f64>,
    flow_shift: Option<f64>,
    /// `stretch`, `crop` or `pad`.
    fit: Option<String>,
    /// A LoRA of `/v1/loras`.
    #[schema(value_type = Option<Object>)]
    lora: Option<String>,
    #[schema(value_type = Option<String>, format = Binary)]
    input_reference: Option<String>,
    #[schema(value_type = Option<String>, format = Binary)]
    last_image: Option<String>,
    #[schema(value_type = Option<String>, format = Binary)]
    video_prefix: Option<String>,
    #[schema(value_type = Option<String>, format = Binary)]
    video: Option<String>,
    #[schema(value_type = Option<String>, format = Binary)]
    mask: Option<String>,
    #[schema(value_type = Option<String>, format = Binary)]
    reference: Option<String>,
    reference_scale: Option<u32>,
    #[schema(value_type = Option<String>, format = Binary)]
    audio: Option<String>,
    /// A picture for a frame; as many as there are frames, each under the number of its own.
    #[schema(value_type = Option<String>, format = Binary)]
    #[serde(rename = "keyframe[0]")]
    keyframe: Option<String>,
}

/// What clips that others begin with can be asked for beside.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes a form that is read field by field")]
pub(crate) struct Settings {
    prompt: String,
    model: Option<String>,
    negative_prompt: Option<String>,
    /// Width x height, as in `832x480`.
    size: Option<String>,
    width: Option<u32>,
    height: Option<u32>,
    /// That of the clip where nothing is said.
    fps: Option<f64>,
    /// From 0 on; -1 draws one.
    seed: Option<i64>,
    num_inference_steps: Option<u32>,
    guidance_scale: Option<f64>,
    guidance_scale_2: Option<f64>,
    flow_shift: Option<f64>,
    /// `stretch`, `crop` or `pad`.
    fit: Option<String>,
    /// A LoRA of `/v1/loras`.
    #[schema(value_type = Option<Object>)]
    lora: Option<String>,
    /// A clip, or its id as `video[id]`.
    #[schema(value_type = Option<String>, format = Binary)]
    video: Option<String>,
    /// The id of a clip that was made here, instead of `video`.
    #[serde(rename = "video[id]")]
    video_id: Option<String>,
}

/// What a remix can be asked for.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes a form that is read field by field")]
pub(crate) struct RemixForm {
    prompt: String,
}

/// What an extension can be asked for.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes a form that is read field by field")]
pub(crate) struct ExtensionForm {
    #[serde(flatten)]
    settings: Settings,
    /// How long the new part is; or give `num_frames`, of both parts.
    seconds: Option<String>,
    num_frames: Option<u32>,
}

/// What an edit can be asked for.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes a form that is read field by field")]
pub(crate) struct EditForm {
    #[serde(flatten)]
    settings: Settings,
    /// White is made anew, black stays.
    #[schema(value_type = Option<String>, format = Binary)]
    mask: Option<String>,
}

/// What pictures that others begin with can be asked for.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes a form that is read field by field")]
pub(crate) struct ImageEditForm {
    #[serde(flatten)]
    wishes: ImageForm,
    /// The picture that is changed.
    #[schema(value_type = String, format = Binary)]
    image: String,
    /// White is made anew, black stays. Without one the picture is what a clip of one frame begins with.
    #[schema(value_type = Option<String>, format = Binary)]
    mask: Option<String>,
    /// `low` or `high`, which are the same here.
    input_fidelity: Option<String>,
}

/// What pictures can be asked for.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes a form that is read field by field")]
pub(crate) struct ImageForm {
    prompt: String,
    model: Option<String>,
    negative_prompt: Option<String>,
    /// How many, 1 to 10.
    n: Option<u32>,
    /// Width x height.
    size: Option<String>,
    /// `b64_json` or `url`.
    response_format: Option<String>,
    /// `png`, `jpeg` or `webp`.
    output_format: Option<String>,
    /// Whether events are sent instead of one answer.
    stream: Option<bool>,
    /// 0 to 3 pictures on the way.
    partial_images: Option<u32>,
    seed: Option<i64>,
    num_inference_steps: Option<u32>,
    guidance_scale: Option<f64>,
    guidance_scale_2: Option<f64>,
    flow_shift: Option<f64>,
    width: Option<u32>,
    height: Option<u32>,
    fit: Option<String>,
    /// A LoRA of `/v1/loras`.
    #[schema(value_type = Option<Object>)]
    lora: Option<String>,
}

/// What every call that is refused answers.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes what `Refusal` writes")]
pub(crate) struct Refused {
    error: RefusedError,
}

/// Why a call is refused.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes what `Refusal` writes")]
pub(crate) struct RefusedError {
    message: String,
    r#type: String,
    /// The field that it is about.
    param: Option<String>,
    code: String,
}

/// The document.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Moviola",
        description = "Videos and images of diffusion transformers, on the wire of OpenAI's videos and images."
    ),
    paths(
        videos::create,
        videos::list,
        videos::retrieve,
        videos::delete,
        videos::remix,
        videos::extend,
        videos::edit,
        files::content,
        events::events,
        images::generate,
        images::edit,
        files::picture,
        models::list,
        models::retrieve,
        models::loras,
        metrics::metrics,
        super::health,
        super::ready
    ),
    components(schemas(
        video::Video,
        videos::VideoList,
        videos::VideoDeleted,
        Refused,
        RefusedError,
        VideoForm,
        RemixForm,
        ExtensionForm,
        EditForm,
        ImageForm,
        ImageEditForm,
        Settings
    ))
)]
struct Document;

/// The API as a document.
pub(crate) async fn document() -> Response {
    let document = serde_json::to_value(Document::openapi()).expect("a document is plain JSON");
    Json(completed(document)).into_response()
}

/// A document with what is the same everywhere: parts of a path are texts, and every call may be refused.
fn completed(mut document: Value) -> Value {
    let refusal = json!({
        "description": "It is refused: the message says why and what would do",
        "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Refused" } } },
    });
    let paths = document["paths"].as_object_mut().into_iter().flatten();
    for (path, operations) in paths {
        let names = path.split('{').skip(1).filter_map(|rest| Some(rest.split_once('}')?.0));
        let parameter = |name: &str| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } });
        let parts: Vec<Value> = names.map(parameter).collect();
        for operation in operations.as_object_mut().into_iter().flatten().map(|(_, own)| own) {
            operation["responses"]["4XX"] = refusal.clone();
            let known = operation["parameters"].take();
            let known = known.as_array().cloned().unwrap_or_default();
            operation["parameters"] = parts.iter().cloned().chain(known).collect();
        }
    }
    document
}
