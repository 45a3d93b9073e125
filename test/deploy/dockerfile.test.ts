import { validate } from "dockerfile-utils";
import { describe, expect, it } from "vitest";
import { textOf } from "../docs/document.ts";

const dockerfile = textOf("infra/docker/Dockerfile");

/** The instructions of one stage, by its name. */
function stage(name: string): string {
  const body = dockerfile.split(/^FROM /m).find((each) => new RegExp(`^\\S+ AS ${name}\\n`).test(each));
  if (body === undefined) throw new Error(`there is no stage ${name}`);
  return body;
}

describe.each(["infra/docker/Dockerfile", "infra/runner-example/Dockerfile", "infra/python-runner/Dockerfile"])(
  "%s",
  (path) => {
    it("has nothing that a linter finds", () => {
      expect(validate(textOf(path))).toEqual([]);
      expect(validate("FROM node\nCPOY . .\n")).not.toEqual([]);
    });
  },
);

describe("infra/docker/Dockerfile", () => {
  it("ends as an ordinary user in both of its images", () => {
    for (const name of ["app", "sandbox"])
      expect(
        stage(name)
          .trim()
          .split("\n")
          .findLast((line) => line !== ""),
      ).toBe("USER node");
    expect(dockerfile.trimEnd().endsWith(stage("app").trimEnd())).toBe(true);
  });

  it("copies into its images what was installed and health.mjs alone, and takes no secrets as arguments", () => {
    expect([...stage("runtime").matchAll(/^COPY (.*)$/gm)].map(([, what]) => what)).toEqual([
      "infra/docker/health.mjs infra/docker/health.mjs",
      "--from=installed /app .",
    ]);
    expect([...dockerfile.matchAll(/^ARG (.*)$/gm)].map(([, what]) => what)).toEqual(["APP", "APP"]);
  });

  it("uses the pnpm and the turbo of the checkout", () => {
    const { packageManager } = JSON.parse(textOf("package.json")) as { packageManager: string };
    const [, turbo] = /^ {2}turbo: (.*)$/m.exec(textOf("pnpm-workspace.yaml")) ?? [];
    for (const path of ["infra/docker/Dockerfile", "infra/runner-example/Dockerfile"]) {
      expect(textOf(path)).toContain(`RUN npm install --global ${packageManager} turbo@${turbo}\n`);
    }
  });
});
