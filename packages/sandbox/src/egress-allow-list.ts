/** Where a program wants to go. */
export interface EgressTarget {
  /** Lower case, without a trailing dot. */
  host: string;
  port: number;
}

/** Who may be talked to. */
export type AllowList = (target: EgressTarget) => boolean;

const hostName = /^(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_]([a-z0-9_-]{0,62}))*$/;
/** A last label of digits or 0x... is how URLs spell addresses; such a thing is no name. */
const numericEnd = /(^|\.)(\d+|0x[0-9a-f]*)$/;
const defaultPorts = new Set([80, 443]);

/** Whether this is a name of the DNS, as opposed to an address in any of its spellings. */
export function isHostName(host: string): boolean {
  return hostName.test(host) && !numericEnd.test(host);
}

interface AllowRule {
  /** The name, or the end of it with the dot in front. */
  name: string;
  wildcard: boolean;
  port: number | undefined;
}

function parseRule(entry: string): AllowRule {
  const [, wildcard, name = "", port] = /^(\*\.)?([^:]+?)\.?(?::(\d{1,5}))?$/.exec(entry.toLowerCase()) ?? [];
  const number = port === undefined ? undefined : Number(port);
  if (!isHostName(name) || number === 0 || (number ?? 0) > 65_535) {
    throw new Error(`${JSON.stringify(entry)} names no host: write api.example.com, *.example.org or host:8443`);
  }
  return { name: wildcard === undefined ? name : `.${name}`, wildcard: wildcard !== undefined, port: number };
}

/**
 * Reads an allow-list of names: `api.example.com`, `*.example.org` (every name below it, not itself),
 * `host:8443`; without a port 80 and 443 are meant. Throws at an entry that is no name, such as an
 * address, a URL or `*`.
 */
export function allowListOf(entries: readonly string[]): AllowList {
  const rules = entries.map(parseRule);
  return ({ host, port }) =>
    rules.some(
      (rule) =>
        (rule.port === undefined ? defaultPorts.has(port) : rule.port === port) &&
        (rule.wildcard ? host.endsWith(rule.name) : host === rule.name),
    );
}

/** Reads `host:port` as in a CONNECT request; undefined for anything else. */
export function targetOfAuthority(authority: string): EgressTarget | undefined {
  // Only these characters: the URL parser would skip over a path, a user name or white space.
  if (!/^[^\s/\\?#@%]{1,255}:\d{1,5}$/.test(authority)) return undefined;
  const url = URL.parse(`http://${authority}`);
  return url === null ? undefined : targetOfUrl(url);
}

/** Where a URL leads; its parser has already turned every spelling of an address into the dotted one. */
export function targetOfUrl(url: URL): EgressTarget {
  const port = url.port === "" ? (url.protocol === "https:" ? 443 : 80) : Number(url.port);
  return { host: url.hostname.replace(/\.$/, ""), port };
}
