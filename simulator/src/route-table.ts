import findMyWay, { type HTTPMethod } from "find-my-way";
import type { ApiRoute, OpenRoute } from "./platform.ts";
import { PlatformError } from "./platform-error.ts";

/** A route with the parameters of the path that matched it. */
export type RouteMatch =
  | { kind: "api"; route: ApiRoute; params: Record<string, string> }
  | { kind: "open"; route: OpenRoute; params: Record<string, string> };

type Found = { kind: "api"; route: ApiRoute } | { kind: "open"; route: OpenRoute };

/** Longer than any id of the platform. */
const maxParamLength = 2_000;

const methods = ["GET", "POST", "PUT", "PATCH", "DELETE"] as const satisfies readonly HTTPMethod[];

/** The operations of the platform by method and path. */
export class RouteTable {
  readonly #router = findMyWay({ maxParamLength });

  constructor(apiRoutes: readonly ApiRoute[], openRoutes: readonly OpenRoute[]) {
    for (const route of openRoutes) this.#add({ kind: "open", route });
    for (const route of apiRoutes) this.#add({ kind: "api", route });
  }

  /** Throws for unknown paths 404/99991201, for other methods of known ones 405/99991301. */
  find(method: string, path: string): RouteMatch {
    const known = methods.find((one) => one === method);
    const match = known && this.#router.find(known, path);
    if (match) {
      const found: Found = match.store; // What #add has put there.
      return { ...found, params: match.params as Record<string, string> };
    }
    if (methods.some((one) => this.#router.find(one, path) !== null)) {
      throw new PlatformError(99991301, "the request method is not supported", { status: 405 });
    }
    throw new PlatformError(99991201, "404 page not found", { status: 404 });
  }

  #add(found: Found): void {
    const { method, path } = found.route;
    const known = methods.find((one) => one === method);
    if (known === undefined) throw new Error(`no operation of the platform has the method ${method}`);
    this.#router.on(known, path, () => {}, found);
  }
}
