import clsx from "clsx";
import { type ReactNode, useId } from "react";

const CONTROL_CLASS =
  "w-full rounded-2 border bg-bg-pop px-2 py-1.5 text-13 text-text placeholder:text-text-3 coarse:text-16";

/** Props that a labeled field passes to its control. */
export interface ControlProps {
  id: string;
  "aria-describedby": string | undefined;
  "aria-invalid": boolean;
  "aria-required": boolean;
  className: string;
}

interface LabeledFieldProps {
  label: string;
  /** The name in the schema. */
  name?: string | undefined;
  description: string | null;
  isRequired: boolean;
  problem: string | undefined;
  children: (control: ControlProps) => ReactNode;
}

/** A control with its label, description and error. */
export function LabeledField({ label, name, description, isRequired, problem, children }: LabeledFieldProps) {
  const id = useId();
  const describedBy = [description && `${id}-about`, problem && `${id}-problem`].filter(Boolean).join(" ");
  return (
    <div className="flex flex-col gap-1">
      <label htmlFor={id} className="text-12 font-medium text-text-2">
        {label}
        {isRequired && (
          <span aria-hidden className="ml-0.5 text-failed-text" title="Required">
            *
          </span>
        )}
        {name !== undefined && <FieldName name={name} />}
      </label>
      {children({
        id,
        "aria-describedby": describedBy || undefined,
        "aria-invalid": problem !== undefined,
        "aria-required": isRequired,
        className: clsx(CONTROL_CLASS, problem === undefined ? "border-border-strong" : "border-failed"),
      })}
      {problem !== undefined && (
        <p id={`${id}-problem`} className="text-12 text-failed-text">
          {problem}
        </p>
      )}
      {description && (
        <p id={`${id}-about`} className="text-12 text-text-3">
          {description}
        </p>
      )}
    </div>
  );
}

export const FieldName = ({ name }: { name: string }) => (
  <span className="ml-1.5 font-mono text-11 font-normal text-text-3">{name}</span>
);

interface TextFieldProps {
  label: string;
  description: string;
  value: string;
  problem?: string | undefined;
  onChange: (text: string) => void;
}

/** A text field that is not part of the worker's schema. */
export function TextField({ label, description, value, problem, onChange }: TextFieldProps) {
  return (
    <LabeledField label={label} description={description} isRequired={false} problem={problem}>
      {({ className, ...control }) => (
        <input
          {...control}
          type="text"
          value={value}
          onChange={(event) => onChange(event.target.value)}
          className={className}
        />
      )}
    </LabeledField>
  );
}
