import { validate } from "dockerfile-utils";
import { describe, expect, it } from "vitest";
import { textOf } from "../docs/document.ts";

const dockerfile = textOf("infra/docker/Dockerfile");

/** The instructions of one stage, by its name. */
function stage(name: string): string {
  const body = dockerfile
    .split(/^FROM /m)
    .find((each) => new RegExp(`^\\S+ AS ${name}\\n`).test(each));
  if (body === undefined) throw new Error(`there is no stage ${name}`);
  return body;
}

describe.each([
  "infra/docker/Dockerfile",
  "infra/runner-example/Dockerfile",
  "infra/python-runner/Dockerfile",
])("%s", (path) => {
  it("has nothing that a linter finds", () => {
    expect(validate(textOf(path))).toEqual([]);
    expect(validate("FROM node\nCPOY . .\n")).not.toEqual([]);
  });
});

describe("infra/docker/Dockerfile", () => {
  it("ends as an ordinary user in each of its images", () => {
    for (const name of ["app", "sandbox", "feishu"]) {
      expect(
        stage(name)
          .trim()
          .split("\n")
          .findLast((line) => line !== ""),
      ).toBe("USER node");
    }
    expect(dockerfile.trimEnd().endsWith(stage("app").trimEnd())).toBe(true);
  });

  it("copies into its images what was installed, the bundles and health.mjs alone, and takes no secrets as arguments", () => {
    expect([...stage("runtime").matchAll(/^COPY (.*)$/gm)].map(([, what]) => what)).toEqual([
      "infra/docker/health.mjs infra/docker/health.mjs",
      "--from=installed /app .",
      "--from=bundled /app/bundles bundles",
    ]);
    expect([...dockerfile.matchAll(/^ARG (.*)$/gm)].map(([, what]) => what)).toEqual([
      "APP",
      "APP",
    ]);
  });

  it("uses the pnpm and the turbo of the checkout", () => {
    const { packageManager } = JSON.parse(textOf("package.json")) as { packageManager: string };
    const [, turbo] = /^ {2}turbo: (.*)$/m.exec(textOf("pnpm-workspace.yaml")) ?? [];
    for (const path of ["infra/docker/Dockerfile", "infra/runner-example/Dockerfile"]) {
      expect(textOf(path)).toContain(`RUN npm install --global ${packageManager} turbo@${turbo}\n`);
    }
  });
});

describe("what is taken from registries", () => {
  const files = [
    "infra/docker/Dockerfile",
    "infra/runner-example/Dockerfile",
    "infra/python-runner/Dockerfile",
    "infra/compose/compose.yaml",
    "infra/k8s/redis/redis.yaml",
  ];
  /** Images that a file names, without those that are built here: stages and `larkline/...`. */
  const imagesOf = (path: string): string[] => {
    const text = textOf(path);
    const stages = [...text.matchAll(/^FROM \S+ AS (\S+)$/gm)].map(([, name]) => name);
    const named = [...text.matchAll(/^(?:FROM|\s*image:) (\S+)/gm)].map(([, image = ""]) => image);
    return named.filter((image) => !stages.includes(image) && !image.startsWith("larkline/"));
  };

  it("is pinned by digest: images with their tag beside it", () => {
    const images = files.flatMap(imagesOf);
    expect(images).toHaveLength(10);
    for (const image of images) expect(image).toMatch(/^[a-z/]+:[\w.-]+@sha256:[0-9a-f]{64}$/);
  });

  it("is one digest for one image", () => {
    const digests = new Map<string, Set<string>>();
    for (const image of files.flatMap(imagesOf)) {
      const [name = "", digest = ""] = image.split("@");
      digests.set(name, (digests.get(name) ?? new Set()).add(digest));
    }
    for (const [name, found] of digests) {
      expect({ name, count: found.size }).toEqual({ name, count: 1 });
    }
  });

  it("is pinned by commit: actions, with their version beside it", () => {
    const actions = [...textOf(".github/workflows/test.yml").matchAll(/uses: (.*)$/gm)].map(
      ([, uses]) => uses,
    );
    expect(actions).toHaveLength(2);
    for (const action of actions) expect(action).toMatch(/^[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$/);
  });

  it("is the Node that everything runs on", () => {
    const [, pinned] = /^ {2}node: (.*)$/m.exec(textOf("pnpm-workspace.yaml")) ?? [];
    for (const path of files.slice(0, 2)) {
      expect(imagesOf(path)).toContainEqual(expect.stringContaining(`node:${pinned}-`));
    }
  });
});
