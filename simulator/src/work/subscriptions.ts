import type { ApiCallContext, ApiRoute } from "../api-route.ts";
import { type DeliveryReport, envelope } from "../delivery.ts";
import { userIds } from "../events.ts";
import { type JsonObject, PlatformError, success } from "../open-api.ts";
import type { Platform } from "../platform.ts";

// Events that an app gets about a person once that person has subscribed it to them ("Subscribe to meeting events").

/** Where people subscribe, to which event, and what they must have granted. */
const kinds = [
  {
    path: "/open-apis/vc/v1/meetings",
    type: "vc.meeting.participant_meeting_ended_v1",
    scope: "vc:meeting.meetingevent:read",
  },
  {
    path: "/open-apis/minutes/v1/minutes",
    type: "minutes.minute.generated_v1",
    scope: "minutes:minutes.basic:read",
  },
] as const;

export interface SubscriptionControls {
  /** Types of the events to which a person has subscribed an app. */
  subscribed(appId: string, openId: string): readonly string[];
}

export class SimSubscriptions implements SubscriptionControls {
  /** By app and person. */
  readonly types = new Map<string, Set<string>>();
  #platform: Platform | undefined;

  subscribed(appId: string, openId: string): readonly string[] {
    return [...(this.types.get(`${appId} ${openId}`) ?? [])];
  }

  routes(platform: Platform): ApiRoute[] {
    this.#platform = platform;
    return kinds.flatMap(({ path, type, scope }) =>
      (["subscription", "unsubscription"] as const).map((what) => ({
        method: "POST",
        path: `${path}/${what}`,
        personScopes: [scope],
        handle: (call: ApiCallContext) => this.#change(call, type, what === "subscription"),
      })),
    );
  }

  /** One event for each app that some of these people have subscribed; it names those. */
  async announce(
    eventType: (typeof kinds)[number]["type"],
    people: readonly string[],
    event: JsonObject,
  ): Promise<DeliveryReport[]> {
    const platform = this.#platform;
    if (platform === undefined) return [];
    const reports = [...platform.apps.values()].map(async (app) => {
      const subscribers = [...new Set(people)].flatMap((openId) => {
        const person = platform.directory.users.get(openId);
        const isSubscribed =
          this.subscribed(app.appId, openId).includes(eventType) &&
          platform.grants.grantedTo(app.appId, openId).length > 0;
        return person === undefined || !isSubscribed ? [] : [userIds(person)];
      });
      if (subscribers.length === 0) return [];
      const named = { ...event, subscriber_ids: subscribers };
      const createdAt = platform.clock.now();
      return [await platform.publish(envelope(app, { eventType, event: named, createdAt }))];
    });
    return (await Promise.all(reports)).flat();
  }

  #change({ app, person, body }: ApiCallContext, type: string, isOn: boolean): JsonObject {
    if (person === undefined || body.event_type !== type) {
      throw new PlatformError(99992402, "field validation failed: event_type");
    }
    const key = `${app.appId} ${person.openId}`;
    const types = this.types.get(key) ?? new Set<string>();
    if (isOn) types.add(type);
    else types.delete(type);
    this.types.set(key, types);
    return success({});
  }
}
