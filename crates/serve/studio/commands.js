// A request as a command that makes the same: for curl, and for `moviola generate`.

import { hasKey } from "./api.js";

/** A word of a shell. */
const word = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${String(text).replaceAll("'", "'\\''")}'`);

const lines = (words) => words.join(" \\\n  ");

const PATHS = { video: "/v1/videos", image: "/v1/images/generations" };

/** What curl is told to send the same. */
export const curl = (facts, pairs) => {
  const field = ([name, value]) => {
    if (value instanceof File || value?.isFile) {
      // Within double quotes of curl's own, so that no ; or , of the name says anything.
      const name_ = value.name.replace(/["\\]/g, "\\$&");
      return `--form ${word(`${name}=@"${name_}"`)}`;
    }
    // Other than --form, this reads nothing into @, < and ;.
    return `--form-string ${word(`${name}=${value}`)}`;
  };
  const key = hasKey() ? [`--header "Authorization: Bearer $MOVIOLA_KEY"`] : [];
  return lines([`curl ${word(location.origin + PATHS[facts.makes])}`, ...key, ...pairs.map(field)]);
};

const FLAGS = {
  prompt: "prompt", negative_prompt: "negative", num_frames: "frames", fps: "fps", n: "count", num_inference_steps: "steps", guidance_scale: "guidance",
  guidance_scale_2: "guidance-2", flow_shift: "flow-shift", fit: "fit", seed: "seed", input_reference: "image", image: "image", last_image: "last-image",
  video_prefix: "video-prefix", video: "video", mask: "mask", audio: "audio",
};

/** What the command is told to make the same, without a server. */
export const command = (facts, pairs) => {
  const scale = pairs.find(([name]) => name === "reference_scale")?.[1];
  const flag = ([name, value]) => {
    const text = value instanceof File || value?.isFile ? value.name : String(value);
    if (name === "model" || name === "reference_scale") return [];
    if (name === "size") {
      const [width, height] = text.split("x");
      return [`--width ${width}`, `--height ${height}`];
    }
    if (name === "reference") return [`--reference ${word(scale ? `${text}:${scale}` : text)}`];
    if (name.startsWith("keyframe[")) return [`--keyframe ${word(`${name.slice(9, -1)}:${text}`)}`];
    if (name === "lora") {
      const { name: own, scale: strength } = JSON.parse(text);
      return [`--lora ${word(`${facts.command.loras ?? "LORAS"}/${own}.safetensors:${strength}`)}`];
    }
    // With a sign of equality a text may begin with a dash.
    return FLAGS[name] ? [`--${FLAGS[name]}=${word(text)}`] : [];
  };
  const output = facts.makes === "image" ? "picture.png" : "clip.mp4";
  return lines([`moviola generate ${facts.command.arguments.map(word).join(" ")}`, ...pairs.flatMap(flag), `--output ${output}`]);
};

/** What a clip of the server was asked for, as pairs. Files are called as `named` says, which gets their conditions. */
export const pairsOf = (video, facts) => {
  const all = [["model", video.model], ["prompt", video.prompt]];
  const add = (name, value) => value !== undefined && value !== null && value !== "" && all.push([name, value]);
  add("negative_prompt", video.negative_prompt);
  all.push(["size", video.size], ["num_frames", video.num_frames]);
  if (video.fps !== facts.fps) add("fps", video.fps);
  for (const name of ["num_inference_steps", "guidance_scale", "guidance_scale_2", "flow_shift", "fit"]) add(name, video[name]);
  for (const lora of video.lora ?? []) all.push(["lora", JSON.stringify(lora)]);
  all.push(["seed", video.seed]);
  for (const given of video.conditions ?? []) {
    const field = given.name === "keyframe" ? `keyframe[${given.frame}]` : given.field;
    all.push([field, { isFile: true, name: given.file }]);
    if (given.scale) all.push(["reference_scale", given.scale]);
  }
  return all;
};
