import { createRequire } from "node:module";
import { dirname } from "node:path";
import { createBullBoard } from "@bull-board/api";
import { BullMQAdapter } from "@bull-board/api/bullMQAdapter";
import { FastifyAdapter } from "@bull-board/fastify";
import { turnsQueue } from "@larkline/store/queues";
import { withDeadline } from "@larkline/protocol/clock";
import type { FastifyInstance } from "fastify";
import { shownJobData } from "./job.ts";
import { countAction, isSecure, jobPath, pageDeadlineMs } from "./page.ts";
import type { Services, Stores } from "./services.ts";
import { signedInMs } from "./sign-ins.ts";

const require = createRequire(import.meta.url);

export const boardPath = "/queues";

/** The cookie that the board's scripts send back as a header with whatever changes something. */
const csrfCookie = "XSRF-TOKEN";

/** Set by us on every request, so that what the board answers can depend on it. */
const roleHeader = "x-console-role";

/**
 * What operators may do with jobs and queues. Not among them is what would break promises: jobs that
 * no worker signed, other data for a call, other limits than its tool says, queues without their settings.
 */
const actions = new Set(["retry", "promote", "clean", "empty", "pause", "resume"]);

/** Adds Bull Board over all queues, for those whom the guard admits. */
export async function registerQueueBoard(
  server: FastifyInstance,
  services: Services,
): Promise<void> {
  const { catalog, clock, queues, log } = services;
  const adapters = new Map<string, BullMQAdapter>();
  const serverAdapter = new FastifyAdapter().setBasePath(boardPath);
  const board = createBullBoard({
    queues: [],
    serverAdapter,
    options: {
      uiBasePath: dirname(require.resolve("@bull-board/ui/package.json")),
      uiConfig: {
        boardTitle: "Larkline",
        hideDocsLink: true,
        miscLinks: [{ text: "Larkline", url: "/" }],
        showWorkers: false, // would ask for all connections of the server, every few seconds
      },
      handlerHooks: {
        after: ({ request }, result) =>
          request.headers[roleHeader] !== "operator" && isList(result.body)
            ? { ...result, body: withoutActions(result.body) }
            : result,
      },
    },
  });

  const refresh = async (): Promise<void> => {
    const names = await withDeadline(clock, queues.names(), pageDeadlineMs);
    for (const name of names) if (!adapters.has(name)) adapters.set(name, adapterOf(catalog, name));
    for (const name of adapters.keys()) if (!names.includes(name)) adapters.delete(name);
    board.replaceQueues([...adapters.values()]);
  };

  await server.register(async (scope) => {
    scope.addHook("preHandler", async (request, reply) => {
      request.headers[roleHeader] = request.session?.role;
      if (request.method !== "GET" && request.method !== "HEAD") {
        const action = actionOf(request.method, request.url);
        if (action === undefined) {
          return await reply.code(403).send({ error: "the console does not offer this" });
        }
        // A call that has failed is answered, and its arguments are not kept.
        if (action === "retry" && queueOf(request.url) !== turnsQueue) {
          return await reply
            .code(403)
            .send({ error: "calls are not run again: ask the agent once more" });
        }
        countAction(services, action, request.url);
      } else if (!request.url.includes("/static/")) {
        const cookie = { maxAge: signedInMs / 1_000, secure: isSecure(request), httpOnly: false };
        reply.setCookie(csrfCookie, reply.generateCsrf(), cookie);
      }
      if (!request.url.startsWith(`${boardPath}/api/`)) return undefined;
      await refresh().catch((error: unknown) =>
        log.warn({ error }, "the queues could not be listed anew"),
      );
      return undefined;
    });
    scope.addHook("onSend", async (_request, reply, payload) =>
      String(reply.getHeader("content-type")).startsWith("text/html")
        ? withoutStrangers(payload)
        : payload,
    );
    await scope.register(serverAdapter.registerPlugin(), { prefix: boardPath });
  });
}

/** The action of `PUT …/queues/<queue>[/<job>]/<action>[/<state>]`, or of all queues; undefined when it is none. */
export function actionOf(method: string, path: string): string | undefined {
  const [, rest = ""] = /\/api\/queues\/([^?]*)/.exec(path) ?? [];
  if (method !== "PUT") return undefined;
  const words = rest.split("/");
  const [first = "", second = "", third = ""] = words;
  if (words.length > 3) return undefined;
  if (words.length === 1) return first === "pause" || first === "resume" ? first : undefined;
  const ofQueue = words.length === 2 || second === "retry" || second === "clean";
  const action = ofQueue ? second : third;
  return actions.has(action) ? action : undefined;
}

/** The queue that a request is about; undefined when it is about all. */
function queueOf(path: string): string | undefined {
  const [, name] = /\/api\/queues\/([^?/]+)\//.exec(path) ?? [];
  return name === undefined ? undefined : decodeURIComponent(name);
}

function adapterOf(catalog: Stores["catalog"], name: string): BullMQAdapter {
  const adapter = new BullMQAdapter(catalog.open(name), {
    allowRetries: name === turnsQueue,
    externalJobUrl: ({ id }) => ({ displayText: "Larkline", href: jobPath(name, String(id)) }),
  });
  adapter.setFormatter("data", shownJobData);
  adapter.setFormatter("returnValue", (value: unknown) =>
    value === undefined || value === null ? value : "hidden",
  );
  adapter.setFormatter("progress", (value: unknown) => (typeof value === "number" ? value : 0));
  return adapter;
}

interface ListedQueues {
  queues: Record<string, unknown>[];
}

function isList(body: unknown): body is ListedQueues {
  return (
    typeof body === "object" && body !== null && "queues" in body && Array.isArray(body.queues)
  );
}

/** Viewers are not offered what they would be refused. */
function withoutActions(body: ListedQueues): ListedQueues {
  const readOnly = { readOnlyMode: true, allowRetries: false, allowCompletedRetries: false };
  return { queues: body.queues.map((queue) => ({ ...queue, ...readOnly })) };
}

/** Its page loads fonts from another site. Browsers would block that; the link is removed as well. */
function withoutStrangers(payload: unknown): unknown {
  return typeof payload === "string"
    ? payload.replaceAll(/<link href="https?:[^>]*>/g, "")
    : payload;
}
