import { execFile } from "node:child_process";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { promisify } from "node:util";
import { clusterFiles } from "@larkline/k8s";
import type { IScaledObject } from "@kubernetes-models/keda/keda.sh/v1alpha1";
import type {
  IPodMonitor,
  IPrometheusRule,
} from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1";
import type { IDeployment, IStatefulSet } from "kubernetes-models/apps/v1";
import type { IIngress, INetworkPolicy } from "kubernetes-models/networking.k8s.io/v1";
import type { IPodDisruptionBudget } from "kubernetes-models/policy/v1";
import type { IConfigMap, INamespace, ISecret, IService } from "kubernetes-models/v1";
import { parseAllDocuments } from "yaml";
import { root } from "../docs/document.ts";

const run = promisify(execFile);

/** What infra/k8s is made of; each is checked against the schema of its kind. */
export type Manifest =
  | IDeployment
  | IStatefulSet
  | IService
  | IConfigMap
  | ISecret
  | INamespace
  | INetworkPolicy
  | IIngress
  | IPodDisruptionBudget
  | IScaledObject
  | IPodMonitor
  | IPrometheusRule;

/** What an operator may have written down. */
export const operator = {
  FEISHU_APP_ID: "cli_0123456789abcdef",
  FEISHU_APP_SECRET: "app=secret",
  ANTHROPIC_API_KEY: "model-key",
};

const kustomize = createRequire(import.meta.url).resolve("kustomize/run.js");

/** What `kubectl apply -k .data/k8s` would send to a cluster, made by the same command and Kustomize itself. */
export async function renderCluster(
  overlay: string,
  redisUrl = "redis://redis:6379",
): Promise<Manifest[]> {
  const folder = await mkdtemp(join(tmpdir(), "larkline-k8s-"));
  try {
    const images = { prefix: "registry.example.com/larkline", tag: "1.2.3" };
    const place = relative(folder, join(root, "infra/k8s/overlays", overlay));
    const runtimeClass = "kata";
    const cluster = {
      env: operator,
      runners: ["weather"],
      overlay: place,
      redisUrl,
      images,
      runtimeClass,
    };
    for (const { name, text } of clusterFiles(cluster, {})) {
      await mkdir(folder, { recursive: true });
      await writeFile(join(folder, name), text);
    }
    const { stdout } = await run(process.execPath, [kustomize, "build", folder], {
      maxBuffer: 16 * 1024 * 1024,
    });
    return parseAllDocuments(stdout).map((document) => document.toJS() as Manifest); // checked by the first test
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Those of one kind. */
export function only<Kind extends Manifest["kind"]>(
  manifests: readonly Manifest[],
  kind: Kind,
): Extract<Manifest, { kind: Kind }>[] {
  return manifests.filter((one): one is Extract<Manifest, { kind: Kind }> => one.kind === kind);
}
