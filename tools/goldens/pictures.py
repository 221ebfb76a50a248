"""Small pictures in several formats -> goldens/pictures/, and what diffusers makes of them -> pictures.safetensors.

`<file>.levels` is what diffusers' `load_image` reads; `clip.<case>` is `CLIPImageProcessor` (on Pillow) and
`conditioning.<case>` is `VideoProcessor.preprocess`, both on `photo.png`.
"""

import json
import shutil

import numpy as np
import tiny
import torch
from diffusers.utils import load_image
from diffusers.video_processor import VideoProcessor
from PIL import Image
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

CLIP = {
    "shrunk": {"size": {"shortest_edge": 19}, "crop_size": {"height": 19, "width": 22}},
    "grown": {"size": {"shortest_edge": 61}, "crop_size": {"height": 32, "width": 23}},
    "padded": {"size": {"shortest_edge": 9}, "crop_size": {"height": 14, "width": 12}},
    "exact": {"size": {"height": 20, "width": 17}, "crop_size": {"height": 17, "width": 17}, "resample": 2,
              "image_mean": [0.5, 0.4, 0.3], "image_std": [0.5, 0.6, 0.7]},
}
CONDITIONING = {"shrunk": (16, 24), "tall": (56, 16), "wide": (8, 64), "one_way": (40, 16)}


def photo(height, width, seed, channels=3):
    """A gradient with noise and hard edges, so that filters overshoot."""
    rows, columns = np.mgrid[0:height, 0:width]
    noise = torch.rand((height, width, channels), generator=tiny.generator(seed)).numpy()
    base = (rows / height)[..., None] * np.linspace(0.2, 1.0, channels) + (columns / width)[..., None] * 0.4
    base = 0.6 * base + 0.7 * (noise - 0.35) + 0.5 * ((rows // 6 + columns // 9) % 2)[..., None]
    return (np.clip(base, 0, 1) * 255).round().astype(np.uint8)


def write_files(folder):
    """The pictures; each is read back by the tests."""
    Image.fromarray(photo(40, 53, 3400)).save(folder / "photo.png")
    Image.fromarray(photo(5, 7, 3401, 4), "RGBA").save(folder / "alpha.png")
    Image.fromarray(photo(5, 7, 3402, 1)[..., 0], "L").save(folder / "gray.png")
    Image.fromarray(photo(5, 7, 3403, 2), "LA").save(folder / "gray_alpha.png")
    Image.fromarray(photo(6, 9, 3404)).quantize(7).save(folder / "palette.png")
    Image.fromarray(photo(6, 9, 3405)).save(folder / "photo.webp", lossless=True)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter
    Image.fromarray(photo(19, 27, 3406)).save(folder / "turned.jpg", quality=92, subsampling=0, exif=exif)
    Image.fromarray(photo(19, 27, 3407)).save(folder / "halved.jpg", quality=85, subsampling=2)


def main():
    """Write the folder and the tensors."""
    folder = tiny.GOLDENS / "pictures"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_files(folder)
    tensors = {}
    for file in sorted(folder.iterdir()):
        if file.name != "photo.png":
            tensors[f"{file.name}.levels"] = torch.from_numpy(np.array(load_image(str(file))))
    image = load_image(str(folder / "photo.png"))
    configs = {}
    for case, settings in CLIP.items():
        processor = CLIPImageProcessorPil(**settings)
        tensors[f"clip.{case}"] = processor(images=image, return_tensors="pt").pixel_values
        configs[case] = json.loads(processor.to_json_string())
    processor = VideoProcessor(vae_scale_factor=8)
    for case, (height, width) in CONDITIONING.items():
        tensors[f"conditioning.{case}"] = processor.preprocess(image, height=height, width=width)
    tiny.write(tiny.GOLDENS / "pictures.safetensors", tensors, configs)


if __name__ == "__main__":
    main()
