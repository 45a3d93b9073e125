import type { ApiRoute, OpenRoute } from "./platform.ts";
import { PlatformError } from "./platform-error.ts";

/** A route with the parameters of the path that matched it. */
export type RouteMatch =
  | { kind: "api"; route: ApiRoute; params: Record<string, string> }
  | { kind: "open"; route: OpenRoute; params: Record<string, string> };

interface Entry {
  segments: string[];
  match: { kind: "api"; route: ApiRoute } | { kind: "open"; route: OpenRoute };
}

/** Finds the operation of a method and path; unknown paths are 404/99991201, other methods 405/99991301. */
export function createRouteTable(
  apiRoutes: readonly ApiRoute[],
  openRoutes: readonly OpenRoute[],
): (method: string, path: string) => RouteMatch {
  const entries: Entry[] = [
    ...openRoutes.map((route) => ({ segments: route.path.split("/"), match: { kind: "open" as const, route } })),
    ...apiRoutes.map((route) => ({ segments: route.path.split("/"), match: { kind: "api" as const, route } })),
  ];
  return (method, path) => {
    const segments = path.split("/");
    let pathKnown = false;
    for (const entry of entries) {
      const params = matchSegments(entry.segments, segments);
      if (params === undefined) continue;
      if (entry.match.route.method === method) return { ...entry.match, params };
      pathKnown = true;
    }
    if (pathKnown) throw new PlatformError(99991301, "the request method is not supported", { status: 405 });
    throw new PlatformError(99991201, "404 page not found", { status: 404 });
  };
}

function matchSegments(pattern: readonly string[], segments: readonly string[]): Record<string, string> | undefined {
  if (pattern.length !== segments.length) return undefined;
  const params: Record<string, string> = {};
  for (const [index, part] of pattern.entries()) {
    const segment = segments[index] ?? "";
    if (part.startsWith(":")) params[part.slice(1)] = decodeSegment(segment);
    else if (part !== segment) return undefined;
  }
  return params;
}

function decodeSegment(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}
