import type { AddedProvider } from "@larkline/store/operations";
import { isIP } from "node:net";
import type { LarklineConfig } from "./resolved-config.ts";

// Where operators may add servers of models: the file allows it, and is the bound. A console's operator is a claimed name,
// so what conversations hold goes to public https addresses only, and to hosts that the file names.

/** Why the file does not let operators add a server. */
export type AddedProviderProblem =
  | "not_allowed"
  /** The file or the environment has a provider of this name: that one wins. */
  | "in_file"
  | "no_address"
  /** Only https, except for hosts that the file names. */
  | "no_https"
  /** A number or a name of this machine, which the file does not name. */
  | "private_host";

const builtIn = ["anthropic", "openai", "openai-responses"];

/** Undefined: operators may add it. The console asks it for its form, a worker before it stores or uses a server. */
export function addedProviderProblem(
  { modelHosts, providers }: Pick<LarklineConfig, "modelHosts" | "providers">,
  { name, baseUrl }: Pick<AddedProvider, "name" | "baseUrl">,
): AddedProviderProblem | undefined {
  if (modelHosts === undefined) return "not_allowed";
  if (builtIn.includes(name) || Object.hasOwn(providers, name)) return "in_file";
  if (baseUrl === undefined) return undefined;
  if (!URL.canParse(baseUrl)) return "no_address";
  const { protocol, username, password, search, hash, hostname } = new URL(baseUrl);
  if (username !== "" || password !== "" || search !== "" || hash !== "") return "no_address";
  if (isNamedHost(modelHosts, baseUrl)) return undefined;
  if (protocol !== "https:") return "no_https";
  const host = hostname.replace(/^\[|\]$/g, "");
  const isLocal = isIP(host) !== 0 || host === "localhost" || !host.includes(".");
  return isLocal ? "private_host" : undefined;
}

/** The models of servers that the file lets operators add, as agents name them. */
export function addedModelNames(
  settings: Pick<LarklineConfig, "modelHosts" | "providers">,
  servers: readonly AddedProvider[],
): string[] {
  return servers
    .filter((server) => addedProviderProblem(settings, server) === undefined)
    .flatMap(({ name, models }) => models.map((id) => `${name}/${id}`));
}

/** Whether the file names the host of an address, so that it may be private and without https. */
export function isNamedHost(hosts: readonly string[], address: string): boolean {
  const { host, hostname } = new URL(address);
  return hosts.some((named) => [host, hostname].includes(named.toLowerCase()));
}
