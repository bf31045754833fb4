import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { checkProviders, disableProvider, enableProvider, fleetProvidersQuery, type Provider } from "@/api";
import { Countdown } from "@/components/charts/Countdown";
import { ErrorLine, SkeletonRows } from "@/components/charts/ErrorLine";
import { Meter } from "@/components/charts/Meter";
import { useRoving } from "@/components/charts/useRoving";
import { useCanAct } from "@/useCanAct";
import { Button } from "@/components/ui/Button";
import { useNow } from "@/components/ui/Time";
import { isSetUp, limitView, providerState, sortedProviders, type Tone } from "@/views/fleet";
import { formatMinute, formatShort } from "@/views/time";

type Roving = ReturnType<typeof useRoving>;

const DOTS: Record<Tone, string> = {
  plain: "var(--queued)",
  quiet: "var(--queued)",
  done: "var(--done)",
  running: "var(--running)",
  waiting: "var(--waiting)",
  failed: "var(--failed)",
};

/** The providers that are set up, with their state and limits; the others are folded. */
export function ProvidersCard() {
  const query = useQuery(fleetProvidersQuery);
  const canAct = useCanAct();
  const [showsAll, setShowsAll] = useState(false);
  const providers = sortedProviders(query.data?.providers ?? []);
  const shown = showsAll
    ? providers
    : providers.filter((provider) => isSetUp(provider) || provider.status === "disabled");
  const roving = useRoving([...(canAct ? shown.map(({ name }) => name) : []), "all"]);
  const hidden = providers.length - shown.length;
  return (
    <section aria-labelledby="providers" className="card">
      <header>
        <h2 id="providers">Providers</h2>
        <CheckedAt providers={providers} />
        <span className="grow" />
        {canAct && <CheckButton />}
      </header>
      {query.isPending && <SkeletonRows subject="providers" rows={4} height={38} />}
      {query.isError && !query.data && (
        <ErrorLine what="The providers cannot be shown" error={query.error} onRetry={() => void query.refetch()} />
      )}
      {query.data && (
        <ul aria-labelledby="providers" onKeyDown={roving.onKeyDown}>
          {shown.map((provider) => (
            <ProviderItem key={provider.name} provider={provider} canAct={canAct} roving={roving} />
          ))}
          {query.data.providers.length > 0 && (hidden > 0 || showsAll) && (
            <li className="provider">
              <button type="button" className="fold" onClick={() => setShowsAll(!showsAll)} {...roving.item("all")}>
                {showsAll ? "Show only what is set up" : `${hidden} more that are not set up`}
              </button>
            </li>
          )}
        </ul>
      )}
    </section>
  );
}

function CheckedAt({ providers }: { providers: readonly Provider[] }) {
  const now = useNow();
  const last = Math.max(...providers.map(({ checked_at: at }) => (at == null ? -Infinity : Date.parse(at))));
  return Number.isFinite(last) ? (
    <span className="m3 num">checked {formatShort(Math.max(0, now - last))} ago</span>
  ) : null;
}

function CheckButton() {
  const queries = useQueryClient();
  const check = useMutation({
    mutationFn: checkProviders,
    onSettled: () => queries.invalidateQueries({ queryKey: ["providers"] }),
  });
  return (
    <>
      {check.isError && (
        <span role="alert" className="t-failed cut" title={check.error.message}>
          Check failed
        </span>
      )}
      <Button variant="ghost" disabled={check.isPending} onClick={() => check.mutate()}>
        {check.isPending ? "Checking…" : "Check now"}
      </Button>
    </>
  );
}

function ProviderItem({ provider, canAct, roving }: { provider: Provider; canAct: boolean; roving: Roving }) {
  const now = useNow();
  const state = providerState(provider);
  const isSetUpHere = isSetUp(provider);
  const met = provider.limits.find(({ reset_at: resetAt }) => resetAt !== null && resetAt === state.until);
  const facts = [provider.version, provider.kind === "api" ? "model API" : provider.access_mode];
  return (
    <li className="provider">
      <div className="provider-head">
        <i aria-hidden className="dot" style={{ background: DOTS[state.tone] }} />
        <b>{provider.name}</b>
        <span className="m3 cut grow">{facts.filter(Boolean).join(" · ")}</span>
        {state.until !== null && Date.parse(state.until) > now ? (
          <Countdown
            label={provider.status === "rate_limited" ? "limit met, resets in" : `${state.text}, until`}
            since={met?.met_at ?? null}
            until={state.until}
          />
        ) : (
          <span className={state.tone === "failed" || state.tone === "running" ? `t-${state.tone}` : "m3"}>
            {state.text}
          </span>
        )}
        {canAct && (isSetUpHere || provider.status === "disabled") && (
          <SwitchButton provider={provider} roving={roving} />
        )}
      </div>
      {state.detail && (
        <div className="provider-detail" title={state.detail}>
          {state.detail}
        </div>
      )}
      {provider.limits.map((limit, index) => {
        const view = limitView(limit, now, formatMinute);
        return (
          <div key={index} className="limit">
            <span className="cut">{view.name}</span>
            {view.percent === null ? (
              <span />
            ) : (
              <Meter label={`${view.name} of ${provider.name}`} percent={view.percent} tone={view.tone} />
            )}
            <span className="num m3">{view.text}</span>
          </div>
        );
      })}
    </li>
  );
}

/** Switch a provider off for new runs, or on again. */
function SwitchButton({ provider, roving }: { provider: Provider; roving: Roving }) {
  const queries = useQueryClient();
  const isOff = provider.status === "disabled";
  const action = useMutation({
    mutationFn: () => (isOff ? enableProvider(provider.name) : disableProvider(provider.name)),
    onSettled: () => queries.invalidateQueries({ queryKey: ["providers"] }),
  });
  return (
    <>
      {action.isError && (
        <span role="alert" className="t-failed cut" title={action.error.message}>
          Failed
        </span>
      )}
      <Button
        variant="ghost"
        disabled={action.isPending}
        onClick={() => action.mutate()}
        aria-label={`${isOff ? "Enable" : "Disable"} ${provider.name}`}
        className={isOff ? "switch" : "switch on-hover"}
        {...roving.item(provider.name)}
      >
        {isOff ? "Enable" : "Disable"}
      </Button>
    </>
  );
}
