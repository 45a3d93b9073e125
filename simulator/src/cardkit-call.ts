import { hash } from "node:crypto";
import { CardProblem, refusedByCardKit, refusing } from "./card-problem.ts";
import type { CardEntity } from "./card-store.ts";
import type { CardOperationName } from "./card-view.ts";
import { parseJsonObject, type JsonObject } from "./json-fields.ts";
import { success, type ApiCallContext, type Platform } from "./platform.ts";
import { PlatformError } from "./platform-error.ts";

const operationsPerSecond = 10;
const maximumSequence = 2_147_483_647;
const maximumUuidLength = 64;

/** An operation on a card entity; `apply` throws PlatformError or CardProblem and then changes nothing. */
export interface CardOperation {
  op: CardOperationName;
  apply: (entity: CardEntity, call: ApiCallContext) => void;
}

/**
 * Runs an operation of the card API (CardKit pages): own living card, `uuid`, then `sequence` before anything else is
 * looked at, then no click that waits for its answer. Only an operation that is applied uses up its sequence.
 */
export function runOperation(platform: Platform, call: ApiCallContext, { op, apply }: CardOperation): JsonObject {
  const entity = ownEntity(platform, call);
  const sequence = typeof call.body.sequence === "number" ? call.body.sequence : undefined;
  const record = (code: number): void => {
    entity.operations.push({ op, ...(sequence === undefined ? {} : { sequence }), code, at: platform.now() });
  };
  try {
    refusing(refusedByCardKit, () => applyOnce(platform, call, { entity, apply }));
  } catch (error) {
    record(error instanceof PlatformError ? error.code : -1);
    throw error;
  }
  record(0);
  return success({});
}

interface Run {
  entity: CardEntity;
  apply: CardOperation["apply"];
}

function applyOnce(platform: Platform, call: ApiCallContext, { entity, apply }: Run): void {
  // The guide states 10 operations a second for each card; clients have met it as 230020 while streaming, so it is
  // taken for a business limit, not for the gateway's 99991400.
  platform.limiter.checkBusiness(`card ${entity.cardId}`, operationsPerSecond);
  const sequence = checkedSequence(call.body.sequence);
  const uuid = checkedUuid(call.body.uuid);
  const request = uuid === undefined ? "" : hash("sha1", JSON.stringify([call.params, call.body]));
  const earlier = uuid === undefined ? undefined : entity.uuids.get(uuid);
  if (earlier !== undefined && isReplay(platform, request === earlier)) return;
  if (sequence <= entity.sequence) {
    throw new PlatformError(300317, `sequence ${sequence} must be greater than ${entity.sequence}`);
  }
  if (entity.openClicks > 0) throw new PlatformError(200810, "ErrCode: 11310; ErrMsg: card action is lock;");
  apply(entity, call);
  entity.sequence = sequence;
  if (uuid !== undefined) entity.uuids.set(uuid, request);
}

/** A repeated `uuid` with the same request is applied already; with another request it is a conflict. */
function isReplay(platform: Platform, sameRequest: boolean): boolean {
  if (!sameRequest || platform.cards.duplicateUuid === "conflict") throw new PlatformError(200770, "uuid conflict");
  return platform.cards.duplicateUuid === "success";
}

function ownEntity(platform: Platform, call: ApiCallContext): CardEntity {
  const entity = platform.cards.get(call.params.card_id ?? "");
  // What becomes of the entity of a recalled message is not documented; taken for missing, so that nobody relies on it.
  const message = entity?.messageId === undefined ? undefined : platform.messages.get(entity.messageId);
  if (entity === undefined || !entity.named || message?.recalled === true) {
    throw new PlatformError(200740, "card entity not exist");
  }
  if (entity.appId !== call.app.appId) throw new PlatformError(300311, "the card belongs to another app");
  if (platform.cards.isExpired(entity)) throw new PlatformError(200750, "card entity is expired");
  return entity;
}

function checkedSequence(value: unknown): number {
  if (typeof value === "number" && Number.isInteger(value) && value >= 1 && value <= maximumSequence) return value;
  throw parameterError(`sequence must be an integer from 1 to ${maximumSequence}`);
}

function checkedUuid(value: unknown): string | undefined {
  if (value === undefined || value === "") return undefined;
  if (typeof value === "string" && value.length <= maximumUuidLength) return value;
  throw parameterError(`uuid must be a string of 1 to ${maximumUuidLength} characters`);
}

export function parameterError(reason: string): PlatformError {
  return new PlatformError(10002, `invalid parameter: ${reason}`);
}

export function textArgument(body: JsonObject, field: string): string {
  const value = body[field];
  if (typeof value !== "string" || value === "") throw parameterError(`${field} is required`);
  return value;
}

/** A JSON object that the field carries as text. */
export function objectArgument(body: JsonObject, field: string): JsonObject {
  const value = parseJsonObject(textArgument(body, field));
  if (value === undefined) throw new CardProblem("malformed", `${field} is not a JSON object`);
  return value;
}

/** A JSON list that the field carries as text. */
export function listArgument(body: JsonObject, field: string): unknown[] {
  const value = parsedJson(textArgument(body, field));
  if (!Array.isArray(value) || value.length === 0) throw parameterError(`${field} is not a JSON list with entries`);
  return value;
}

function parsedJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
