// `node infra/dev/run.mjs --redis docs/images/make-pictures.mjs`: takes the pictures of the documents anew. The tests on what
// people see (test/e2e/states.test.ts) take them in a real browser, in Chinese and English. An argument
// names the Chromium to use; make-answer.mjs makes the one that moves. Needs a font with Chinese and one with emoji, and pngquant, which makes the files small.
import { spawnSync } from "node:child_process";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { Failure } from "../../infra/dev/launcher/failure.mjs";
import { nodeProgram, root } from "../../infra/dev/launcher/paths.mjs";

const folder = join(root, "docs/images");

/** Says what is missing, before a picture shows boxes in place of signs. */
function checkPrograms() {
  const fonts = spawnSync("fc-list", [":lang=zh"], { encoding: "utf8" }).stdout ?? "";
  const emoji = spawnSync("fc-list", [":charset=1f44d"], { encoding: "utf8" }).stdout ?? "";
  const missing = [
    ...(fonts.trim() === "" ? ["fonts-noto-cjk"] : []),
    ...(emoji.trim() === "" ? ["fonts-noto-color-emoji"] : []),
    ...(spawnSync("pngquant", ["--version"]).error === undefined ? [] : ["pngquant"]),
  ];
  if (missing.length === 0) return;
  throw new Failure(
    `The pictures need ${missing.join(", ")}: apt-get install ${missing.join(" ")}`,
  );
}

function takePictures(chromium) {
  const vitest = join(root, "node_modules/vitest/vitest.mjs");
  const args = ["run", "--config", join(root, "test/vitest.config.ts"), "test/e2e/states.test.ts"];
  const env = {
    ...process.env,
    PICTURES: folder,
    ...(chromium === undefined ? {} : { CHROMIUM_PATH: chromium }),
  };
  const { status } = spawnSync(nodeProgram(), [vitest, ...args], {
    cwd: root,
    env,
    stdio: "inherit",
  });
  if (status !== 0) {
    throw new Failure(
      "The tests have failed: see above. What is in docs/images may be half of it.",
    );
  }
}

async function makeSmall() {
  const files = (await readdir(folder, { recursive: true })).filter((name) =>
    name.endsWith(".png"),
  );
  const args = ["--force", "--ext", ".png", "--skip-if-larger", "--strip", "--nofs", "64", "--"];
  spawnSync("pngquant", [...args, ...files.map((name) => join(folder, name))], {
    stdio: "inherit",
  });
}

try {
  checkPrograms();
  takePictures(process.argv[2]);
  await makeSmall();
} catch (error) {
  if (!(error instanceof Failure)) throw error;
  process.stderr.write(`${error.message}\n`);
  process.exitCode = 1;
}
