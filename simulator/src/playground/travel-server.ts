import { parserOf } from "@larkline/protocol";
import type { FastifyInstance } from "fastify";
import { Type, type Static } from "@larkline/protocol/type";

/** Where the server listens, on the playground's port. */
export const travelPath = "/demo/mcp";

const Request = Type.Object({
  id: Type.Optional(Type.Union([Type.String(), Type.Number()])),
  method: Type.String(),
  params: Type.Optional(
    Type.Object({
      arguments: Type.Optional(Type.Object({ language: Type.Optional(Type.String()) })),
      inputResponses: Type.Optional(
        Type.Record(
          Type.String(),
          Type.Object({
            action: Type.String(),
            content: Type.Optional(
              Type.Object({
                city: Type.Optional(Type.String()),
                day: Type.Optional(Type.String()),
                seat: Type.Optional(Type.String()),
              }),
            ),
          }),
        ),
      ),
    }),
  ),
});
type Request = Static<typeof Request>;

const parseRequest = parserOf(Request);

/** An MCP server of the revision 2026-07-28 with one tool, which asks people where to, when and how. It books nothing. */
export function registerTravelServer(server: FastifyInstance): void {
  server.post(travelPath, async ({ body }, reply) => {
    const request = parseRequest(body);
    if (!request.ok) return reply.code(400).send({ error: request.error });
    const { id, method, params = {} } = request.value;
    if (id === undefined) return reply.code(202).send();
    return reply.send({ jsonrpc: "2.0", id, result: resultOf(method, params) });
  });
  server.get(travelPath, async (_request, reply) => await reply.code(405).send());
}

const tool = {
  name: "book_trip",
  title: "订行程 · Book a trip",
  description: "Books a trip. It asks the traveller for city, day and seat.",
  inputSchema: {
    type: "object",
    properties: {
      language: { type: "string", enum: ["zh", "en"], description: "Of its questions." },
    },
    required: ["language"],
  },
};

function resultOf(method: string, params: NonNullable<Request["params"]>): object {
  const kept = { resultType: "complete", ttlMs: 0, cacheScope: "private" };
  if (method === "server/discover") {
    return { ...kept, supportedVersions: ["2026-07-28"], capabilities: { tools: {} } };
  }
  if (method === "tools/list") return { ...kept, tools: [tool] };
  return method === "tools/call" ? bookingOf(params) : { resultType: "complete" };
}

/** The questions, and with their answers the booking. */
function bookingOf({
  arguments: { language } = {},
  inputResponses,
}: NonNullable<Request["params"]>): object {
  const zh = language === "zh";
  const answer = inputResponses?.["trip"];
  if (answer !== undefined) {
    const { city = "", day = "", seat = "" } = answer.content ?? {};
    const shown = seats.find(({ name }) => name === seat)?.[zh ? "zh" : "en"] ?? seat;
    const booked = zh
      ? `订好了：${day} 去${city}，${shown}。（只是演示，没有真的下单。）`
      : `Booked: ${city} on ${day}, ${shown}. (A demo: nothing was ordered.)`;
    const text =
      answer.action === "accept" ? booked : zh ? "好，不订了。" : "All right, nothing is booked.";
    return { resultType: "complete", content: [{ type: "text", text }] };
  }
  const requestedSchema = {
    type: "object",
    properties: {
      city: { type: "string", title: zh ? "城市" : "City", maxLength: 40 },
      day: { type: "string", format: "date", title: zh ? "日期" : "Day" },
      seat: {
        type: "string",
        title: zh ? "座位" : "Seat",
        enum: seats.map(({ name }) => name),
        enumNames: seats.map((seat) => seat[zh ? "zh" : "en"]),
      },
    },
    required: ["city", "day"],
  };
  const params = {
    mode: "form",
    message: zh ? "去哪里，哪天出发？" : "Where to, and when?",
    requestedSchema,
  };
  return {
    resultType: "input_required",
    inputRequests: { trip: { method: "elicitation/create", params } },
  };
}

const seats = [
  { name: "window", zh: "靠窗", en: "window" },
  { name: "aisle", zh: "靠过道", en: "aisle" },
];
