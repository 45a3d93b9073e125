import type { ParseResult } from "@larkline/protocol";
import type { FastifyReply, FastifyRequest } from "fastify";

/** What a route does with a request. */
export interface Work<Body> {
  request: FastifyRequest;
  parse: (input: unknown) => ParseResult<Body>;
  run: (body: Body) => object | Promise<object>;
}

/** Answers with what the work tells: wrong input is 400 with the reason, ids that name nothing are 404. */
export async function answer<Body>(reply: FastifyReply, { request, parse, run }: Work<Body>): Promise<FastifyReply> {
  const parsed = parse(request.body ?? {});
  if (!parsed.ok) return reply.code(400).send({ error: parsed.error });
  try {
    return await reply.send(await run(parsed.value));
  } catch (error) {
    return reply.code(404).send({ error: error instanceof Error ? error.message : String(error) });
  }
}
