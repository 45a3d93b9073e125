import { isReachableUnasked } from "@larkline/agent/permissions";
import type { RemoteImages } from "@larkline/feishu";
import { maxImageBytes } from "@larkline/protocol/stored-image";

/*
 * Pictures that an answer names by their address. A model that was led astray could tell its secrets to a server in an
 * address of a picture: only hosts that the agent's tools may reach unasked are asked for one, and only at public
 * addresses, which is checked at each connection, redirects included.
 */

const maxRedirects = 3;

/** `fetchPublic`: reaches public addresses only, and follows no redirect by itself. */
export function remoteImages(fetchPublic: typeof fetch = publicFetch()): RemoteImages {
  return async (address, hosts, signal) => {
    let next = address;
    for (let redirects = 0; redirects <= maxRedirects; redirects += 1) {
      if (!isReachableUnasked(next, hosts)) return undefined;
      const response = await fetchPublic(next, {
        redirect: "manual",
        signal,
        headers: { accept: "image/*" },
      });
      const location = response.headers.get("location");
      if (response.status < 300 || response.status > 399 || location === null) {
        return await imageIn(response);
      }
      await response.body?.cancel();
      next = new URL(location, next).href;
    }
    return undefined;
  };
}

async function imageIn({ ok, body }: Response): Promise<Buffer | undefined> {
  if (!ok || body === null) {
    await body?.cancel();
    return undefined;
  }
  const pieces: Uint8Array[] = [];
  let size = 0;
  for await (const piece of body as AsyncIterable<Uint8Array>) {
    size += piece.byteLength;
    if (size > maxImageBytes) return undefined;
    pieces.push(piece);
  }
  return Buffer.concat(pieces);
}

/** A `fetch` of public addresses only. Loaded when it is needed first: few answers name such a picture. */
export function publicFetch(): typeof fetch {
  let guarded: Promise<typeof fetch> | undefined;
  return async (input, init) => {
    guarded ??= import("@larkline/sandbox").then(({ createGuardedFetch }) => createGuardedFetch());
    return await (
      await guarded
    )(input, init);
  };
}
