// `npm run k8s-files -- [options] [runner...]`: writes an overlay of infra/k8s with the secrets and the configuration
// of this deployment into .data/k8s. To be run again, with the same words, after every change of .env and
// larkline.config.ts; it keeps the secrets that it has made.
import { existsSync } from "node:fs";
import { join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { openFolder } from "@larkline/compose";
import { clusterFiles } from "./cluster-files.ts";

const usage = `usage: npm run k8s-files -- [--overlay <folder>] [--redis <url>] [--images <prefix>] [--tag <tag>] [--runtime-class <name>] [runner...]
  --overlay  what it is made of; infra/k8s/overlays/small
  --redis    where Redis is, without a user; redis://redis:6379, that of the overlay small
  --images   what stands before the names of images; larkline
  --tag      which of them; latest
  --runtime-class  of the cluster, with a kernel of its own, for programs that models write; none`;

function refuse(problem: string): never {
  console.error(`${problem}\n${usage}`);
  process.exit(2);
}

function option(standard: string) {
  return { type: "string", default: standard } as const;
}

function wordsOf(words: readonly string[]) {
  try {
    return parseArgs({
      args: [...words],
      allowPositionals: true,
      options: {
        overlay: option("infra/k8s/overlays/small"),
        redis: option("redis://redis:6379"),
        images: option("larkline"),
        tag: option("latest"),
        "runtime-class": { type: "string" },
      },
    });
  } catch (error) {
    return refuse(error instanceof Error ? error.message : String(error));
  }
}

const { values, positionals: runners } = wordsOf(process.argv.slice(2));
// Kubernetes takes no other names for what a runner needs.
const strange = runners.find((name) => !/^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$/.test(name));
if (strange !== undefined) refuse(`'${strange}' is no name of a runner on Kubernetes.`);
const root = fileURLToPath(new URL("../../..", import.meta.url));
const overlay = resolve(root, values.overlay);
if (!existsSync(join(overlay, "kustomization.yaml"))) {
  refuse(`${values.overlay} has no kustomization.yaml.`);
}

const runtimeClass = values["runtime-class"];
if (runtimeClass !== undefined && !/^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$/.test(runtimeClass)) {
  refuse(`'${runtimeClass}' is no name of a runtime class.`);
}

const { written, kept, save } = await openFolder("k8s");
const cluster = {
  ...written,
  runners,
  overlay: relative(join(root, ".data", "k8s"), overlay),
  redisUrl: values.redis,
  images: { prefix: values.images, tag: values.tag },
  runtimeClass,
};
await save(clusterFiles(cluster, kept));
console.log(
  "Written to .data/k8s. See it with `kubectl kustomize .data/k8s`, apply it with `kubectl apply -k .data/k8s`.",
);
