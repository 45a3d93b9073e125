import { scheduleEvents, type ScheduleEvent } from "@larkline/protocol/schedule";
import { callWithToken, type TokenBearer } from "../transport/token-call.ts";

// Events that the platform sends about a person after that person has subscribed the app to them ("Subscribe to meeting
// events", "Subscribe to minutes events"). The calls have no key; subscribing twice is the same as once.

/** Where a person subscribes, and what the body says. */
const subscriptions: Readonly<Record<ScheduleEvent, { path: string; body: object }>> = {
  "meeting-ended": {
    path: "/open-apis/vc/v1/meetings",
    body: { event_type: scheduleEvents["meeting-ended"].type },
  },
  "minutes-ready": {
    path: "/open-apis/minutes/v1/minutes",
    body: { event_type: scheduleEvents["minutes-ready"].type },
  },
};

/** From now on the app gets events of this kind about the person. Rejects with a TokenCallError. */
export async function subscribePerson(
  on: ScheduleEvent,
  person: TokenBearer,
  signal?: AbortSignal,
): Promise<void> {
  await post(`${subscriptions[on].path}/subscription`, on, { person, signal });
}

/** The app gets them no more. Rejects with a TokenCallError. */
export async function unsubscribePerson(
  on: ScheduleEvent,
  person: TokenBearer,
  signal?: AbortSignal,
): Promise<void> {
  await post(`${subscriptions[on].path}/unsubscription`, on, { person, signal });
}

async function post(
  url: string,
  on: ScheduleEvent,
  { person, signal }: { person: TokenBearer; signal: AbortSignal | undefined },
): Promise<void> {
  const data = subscriptions[on].body;
  await callWithToken(
    person,
    async (client, options) => await client.request({ method: "POST", url, data }, options),
    signal,
  );
}
